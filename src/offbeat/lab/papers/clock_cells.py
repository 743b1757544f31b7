"""Cells of the clock alone: when gradients would come, without computing any. Seconds each, so nothing is kept on disk.

The base of such a recipe has the sections `cluster` and `solver` of a configuration, and of its own: `size` of one
parameter vector, `batch` of a worker, `rounds` of gradients that each worker computes, `samples` of the whole training,
and `measure`, one of `MEASURES`. Measures of one worker or one gradient have `look`, which says of which.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.compute as pc
from msgspec import UNSET, Struct, UnsetType

from offbeat.core.errors import ConfigError
from offbeat.core.units import parse_size
from offbeat.engines.cluster import Cluster
from offbeat.lab.config import put
from offbeat.lab.runs.folder import versions
from offbeat.lab.studies.cells import Cell
from offbeat.lab.studies.more_workers import steady_rate
from offbeat.lab.studies.timing import Timed, rule_of, simulate

_START = 0.05  # the share of the gradients that is left out of a distribution of staleness, as in `offbeat delays`


class LookedAt(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """At what one looks: a worker, up to a moment; or the gradient of a draw of a source, where a worker applies it."""

    worker: int = 0
    seconds: float = 0.0
    source: int = 0
    draw: int = 0


class Clocked(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is simulated in one cell, and what is measured of it."""

    cluster: dict[str, Any]
    solver: dict[str, Any]
    rounds: int
    measure: str
    size: str = "0B"
    batch: int = 1
    samples: float = 1.0
    """Of the whole training, for the time that it takes."""
    look: LookedAt | UnsetType = UNSET
    """Left out of the cell's address where it is not given."""


def _staleness(timed: Timed) -> Any:
    applied = timed.trace.filter(timed.trace["applied"])["staleness"].drop_null().to_numpy()
    return applied[int(_START * len(applied)) :]


def _fit_error(what: Clocked, timed: Timed) -> float:
    from offbeat.report.pages.delay_study import fit

    return fit(_staleness(timed), timed.summary["workers"])["fit error"]


def _updates_of_a_worker(what: Clocked, timed: Timed) -> float:
    look = _look(what)
    rows = timed.trace.filter(timed.trace["applied"])
    mine = pc.and_(pc.equal(rows["worker"], look.worker), pc.less_equal(rows["time"], look.seconds))
    return float(pc.sum(mine).as_py() or 0)


def _staleness_of_a_gradient(what: Clocked, timed: Timed) -> float:
    look, rows = _look(what), timed.trace.filter(timed.trace["applied"])
    wanted = {"worker": look.worker, "source": look.source, "draw": look.draw}
    for name, value in wanted.items():
        rows = rows.filter(pc.equal(rows[name], value))
    if rows.num_rows != 1:
        raise ConfigError(f"no gradient is applied once by {', '.join(f'{k} {v}' for k, v in wanted.items())}")
    return float(rows["staleness"][0].as_py())


def _look(what: Clocked) -> LookedAt:
    if isinstance(what.look, UnsetType):
        raise ConfigError(f"measure {what.measure!r} needs look: which worker, when, or which gradient")
    return what.look


MEASURES: Mapping[str, Callable[[Clocked, Timed], float]] = {
    "samples a second": lambda what, timed: steady_rate(timed),
    "minutes": lambda what, timed: what.samples / steady_rate(timed) / 60,
    "milliseconds a round": lambda what, timed: 1000 * what.batch * timed.summary["workers"] / steady_rate(timed),
    "mean staleness": lambda what, timed: float(_staleness(timed).mean()),
    "fit error": _fit_error,
    "updates of a worker": _updates_of_a_worker,
    "staleness of a gradient": _staleness_of_a_gradient,
}
"""What can be measured of a simulation, by name; rates are without the start."""


def clock_cell(base: Mapping[str, Any], found: Mapping[str, Any], seed: int, folder: Path) -> Cell:
    """A cell, checked; its address is that of all its settings, of ours and of the cluster's."""
    values = deepcopy(dict(base))
    for key, value in found.items():
        put(values, key, value)
    what = clocked(values)
    told = json.dumps({**msgspec.to_builtins(what), "cluster": _cluster(what).to_dict(), "seed": seed}, sort_keys=True)
    address = hashlib.sha256(told.encode()).hexdigest()[:12]
    return Cell({**values, "engine": "sim", "seed": seed}, folder / "cells" / address, {}, address)


def clocked(values: Mapping[str, Any]) -> Clocked:
    """The settings of a cell; what is wrong with them in one line."""
    try:
        what = msgspec.convert(dict(values), Clocked)
    except msgspec.ValidationError as e:
        raise ConfigError(f"a cell of the clock alone: {e}") from None
    if what.measure not in MEASURES:
        raise ConfigError(f"measure must be one of {', '.join(MEASURES)}, got {what.measure!r}")
    return what


def run_clock(cells: Sequence[Cell], on_change: Callable[[], None] = lambda: None) -> bool:
    """Every cell that has no outcome yet, one after the other; False when interrupted."""
    try:
        for cell in cells:
            if cell.outcome is None:
                cell.outcome, cell.share = _outcome(cell.config), 1.0
                on_change()
    except KeyboardInterrupt:
        return False
    return True


def _outcome(config: Mapping[str, Any]) -> dict[str, Any]:
    what = clocked({k: v for k, v in config.items() if k not in ("engine", "seed")})
    options = {k: v for k, v in what.solver.items() if k != "name"}
    try:
        machines, rule = _cluster(what), rule_of(what.solver["name"], options)
        updates = what.rounds * (1 if rule.barrier else machines.workers)
        nbytes = parse_size(what.size, "size")
        timed = simulate(machines, rule, updates=updates, seed=config["seed"], nbytes=nbytes, batch=what.batch)
        measured = MEASURES[what.measure](what, timed)
    except ConfigError as e:
        return {"status": "failed", "why": str(e)}
    return {
        "status": "done",
        "measured": measured,
        "mean_staleness": timed.summary["mean_staleness"],
        "wall_seconds": timed.summary["wall_seconds"],
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        **versions(),
    }


def _cluster(what: Clocked) -> Cluster:
    return Cluster.parse(**what.cluster)
