"""Random adversity for runs on real processes: who starts late, who is slow, who stalls, all drawn from a seed.

Processes of a run come from fresh interpreters, which `sitecustomize` beside this file brings here. The functions named
in SEAMS are replaced, when their modules are imported, by ones that sleep now and then before they do their work; the
package knows nothing of it. Naps are short against everybody's patience, and long against everybody's work.
"""

import contextlib
import functools
import importlib
import os
import random
import sys
import time
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "OFFBEAT_STRESS"  # "seed:folder", for all processes of a session

Nap = Callable[[random.Random, int], float]  # (the stream of this seam, calls before this one) -> seconds


def late(draw: random.Random, before: int) -> float:
    """The first call comes late."""
    return draw.uniform(0.0, 0.4) if before == 0 else 0.0


def slow(draw: random.Random, before: int) -> float:
    """Every second one, by lot, is slow in whatever it does, and slowest in the beginning: others get far ahead."""
    if before == 0:
        draw.lot = draw.random() < 0.5  # type: ignore[attr-defined]
    longest = 0.2 if before < 5 else 0.005
    return draw.uniform(0.0, longest) if draw.lot else 0.0  # type: ignore[attr-defined]


def stall(draw: random.Random, before: int) -> float:
    """Now and then nothing happens for a while."""
    return draw.uniform(0.0, 0.2) if draw.random() < 0.02 else 0.0


def stall_often(draw: random.Random, before: int) -> float:
    """The same, for those who are seldom asked to do anything."""
    return draw.uniform(0.0, 0.2) if draw.random() < 0.1 else 0.0


class Seam(NamedTuple):
    what: str
    module: str
    function: str  # Class.method
    nap: Nap
    role: str = ""  # whoever gets here is this process from now on; {0} is the object whose method it is


SEAMS = (
    Seam("the server starts late", "offbeat.engines.real.server_loop", "ServerLoop.run", late, "server {0.life}"),
    Seam("the server stalls", "offbeat.engines.real.server_loop", "ServerLoop._hear", stall),
    Seam(
        "a worker starts late", "offbeat.engines.real.worker_loop", "WorkerLoop.run", late, "worker {0.rank}, {0.life}"
    ),
    Seam("a worker is slow", "offbeat.engines.real.worker_loop", "WorkerLoop._step", slow),
    Seam("the parent stalls", "offbeat.engines.real.control", "RealEngine._hear", stall_often, "parent"),
    Seam("a message is sent late", "offbeat.engines.local.channel", "Channel.send", stall),
    Seam("a thread stalls", "offbeat.engines.threads", "Threads._train_one", stall_often, "threads"),
)


class Adversity:
    """What befalls this process: a function of (seed, test, role, seam, number of the call)."""

    def __init__(self, seed: str, folder: Path) -> None:
        self.seed, self.folder = seed, folder
        self.test = self.role = ""
        self._streams: dict[tuple[str, str, str], tuple[random.Random, list[int]]] = {}

    def befall(self, seam: Seam, owner: Any) -> None:
        if seam.role:
            self.role, self.test = seam.role.format(owner), read(self.folder / "test")
        if not self.role:
            return  # whoever starts the others: they are late themselves
        seconds = self.next(seam)
        if seconds > 0:
            time.sleep(seconds)
            note(self.folder / seam.what)

    def next(self, seam: Seam) -> float:
        key = (self.test, self.role, seam.what)
        if key not in self._streams:
            self._streams[key] = random.Random(f"{self.seed}/{'/'.join(key)}"), [0]
        draw, calls = self._streams[key]
        calls[0] += 1
        return seam.nap(draw, calls[0] - 1)


def read(path: Path) -> str:
    """The test that is being run, as noted by pytest's process."""
    return path.read_text(encoding="utf-8") if path.exists() else ""


def note(path: Path) -> None:
    """One more time that something happened: a file as long as its count, whoever writes to it.

    A test may forbid its processes to write, which is no reason for them to fail here.
    """
    with contextlib.suppress(OSError), path.open("ab") as file:
        file.write(b"x")


def counts(folder: Path) -> dict[str, int]:
    """How often each seam was hit, by all the processes that note it in folders below this one."""
    return {seam.what: sum(f.stat().st_size for f in folder.rglob(seam.what)) for seam in SEAMS}


def wrap(seam: Seam, adversity: Adversity) -> None:
    """A function that is not there is an error: a stress that stresses nothing is worse than none."""
    kind, _, name = seam.function.partition(".")
    owner = getattr(sys.modules[seam.module], kind)
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        adversity.befall(seam, self)
        return inner(self, *args, **options)

    setattr(owner, name, wrapped)


class _OnImport(MetaPathFinder):
    """Wraps the seams of a module as soon as it has been imported."""

    def __init__(self, adversity: Adversity) -> None:
        self.adversity = adversity

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        seams = [s for s in SEAMS if s.module == name]
        if not seams:
            return None
        specs = (f.find_spec(name, path, target) for f in sys.meta_path if f is not self and hasattr(f, "find_spec"))
        spec = next((s for s in specs if s is not None), None)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def load_and_wrap(module: Any) -> None:
            load(module)
            for seam in seams:
                wrap(seam, self.adversity)

        spec.loader.exec_module = load_and_wrap  # type: ignore[method-assign]
        return spec


_installed: list[Adversity] = []


def install() -> None:
    """In every interpreter of a session under stress. A second time, it only takes over another seed and folder."""
    seed, _, folder = os.environ[VARIABLE].partition(":")
    if _installed:
        _installed[0].seed, _installed[0].folder = seed, Path(folder)
        return
    adversity = Adversity(seed, Path(folder))
    _installed.append(adversity)
    sys.meta_path.insert(0, _OnImport(adversity))
    for seam in SEAMS:
        if seam.module in sys.modules:
            wrap(seam, adversity)


def check() -> None:
    """Every seam of the table names a function that there is."""
    for seam in SEAMS:
        kind, _, name = seam.function.partition(".")
        if not callable(getattr(getattr(importlib.import_module(seam.module), kind, None), name, None)):
            raise AttributeError(f"{seam.what!r}: {seam.module} has no {seam.function}; see SEAMS in {__file__}")
