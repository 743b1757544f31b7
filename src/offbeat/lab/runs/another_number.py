"""`offbeat scale`: another number of workers for a run that is running.

The command leaves a wish in the run's folder (`folders/wishes.py`); the process that runs the run looks for one now and
then, asks its engine, and leaves the answer.
"""

import secrets
import time
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError, OffbeatError, StoreError
from offbeat.engines.real.control import RealEngine
from offbeat.folders import wishes
from offbeat.folders.run_files import RunFiles
from offbeat.lab.engines import ENGINES
from offbeat.lab.runs.holding import Hold

_LOOK = 0.2  # seconds between two looks for a wish, or an answer


class WishDesk:
    """Where a run hears wishes: looked at whenever the control has a moment."""

    def __init__(self, folder: Path, engine: RealEngine) -> None:
        self._folder, self._engine = folder, engine
        self._next = 0.0
        wishes.forget(folder)

    def look(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK
        wish = wishes.take_wish(self._folder)
        if wish is None:
            return
        try:
            said, granted = self._engine.scale(wish.workers), True
        except ConfigError as e:
            said, granted = str(e), False
        wishes.leave(self._folder, wishes.Answer(wish.number, granted, said[:1000]))


def scale(run: str | Path, workers: int, *, wait: float = 60.0) -> dict[str, Any]:
    """Has a run that is running, in this process or another, go on with so many workers; `offbeat scale` is the same.

    Returns when the run has answered: workers come and go from then on, each at the end of its round.

    Args:
        run: its folder.
        workers: how many; at most `cluster.workers` of the run, and at least its `local.floor`.
        wait: seconds until it is given up that the run answers.
    """
    folder = Path(run)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ConfigError(f"workers must be a number from 1, got {workers!r}")
    found = RunFiles.open(folder)
    if found.info.engine not in SCALABLE:
        others = ", ".join(SCALABLE)
        raise ConfigError(
            f"{folder} is of the {found.info.engine} engine, whose number of workers stays; it can be changed on "
            f"{others} (and, in a simulation, by cluster.events)"
        )
    if not Hold(folder).taken():
        raise StoreError(f"{folder} is not being run by anybody now: only a running run can be scaled")
    wish = wishes.Wish(secrets.token_hex(8), workers)
    wishes.leave(folder, wish)
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline:
        answer = wishes.read_answer(folder)
        if answer is not None and answer.number == wish.number:
            if not answer.granted:
                raise ConfigError(answer.said)
            return {"run": str(folder), "workers": workers, "said": answer.said}
        if not Hold(folder).taken():
            raise StoreError(f"{folder} ended before it answered")
        time.sleep(_LOOK / 2)
    raise OffbeatError(f"{folder} has not answered within {wait:.0f} s; it may still do what was asked")


SCALABLE = tuple(name for name in ENGINES if name in ("local", "ray", "debug"))
"""Engines whose runs have a control that workers can come to, and leave."""
