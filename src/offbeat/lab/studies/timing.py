"""Timing without training: throughput, staleness, idle time and queueing of thousands of nodes."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from offbeat import solvers
from offbeat.core.budget import Amount, Budget
from offbeat.core.collector import uncollected
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.memory import require
from offbeat.core.solver import Solver
from offbeat.core.trace import APPLIED
from offbeat.core.units import counted
from offbeat.engines.clock import columns as slotted
from offbeat.engines.clock.general import Timing
from offbeat.engines.cluster import Cluster
from offbeat.engines.protocol import ToTheMark
from offbeat.folders.parquet import TRACE
from offbeat.lab.runs.folder import trace_table
from offbeat.lab.runs.plan import Plan
from offbeat.tasks.idle import Idle

_WORKER, _ROW = 5_000, 600
"""Bytes of a worker, and of a gradient's row while it is made and becomes a table; measured."""

Progress = Callable[[int, float], object]
"""Called now and then with the updates so far and the virtual clock."""


@dataclass(frozen=True)
class Timed:
    """What a timing-only simulation found."""

    summary: dict[str, Any]
    trace: pa.Table
    """One row a gradient, as in a run; losses and norms are null or 0."""
    per_worker: list[dict[str, float]]
    """Where each worker's seconds went."""


def simulate(
    cluster: int | Cluster,
    solver: str | Solver = "asgd",
    *,
    updates: int | None = None,
    seconds: float | None = None,
    nbytes: int = 0,
    batch: int = 1,
    seed: int = 0,
    loop: Literal["auto", "general"] = "auto",
    progress: Progress = lambda updates, now: None,
) -> Timed:
    """Simulates the clock alone, until so many updates or virtual seconds, whichever is first.

    `nbytes` is the size of one parameter vector, for links with a bandwidth. Rules that apply every gradient on arrival
    take a loop of their own, which gives the same events many times faster; `loop="general"` runs the rule itself.
    """
    machines = cluster if isinstance(cluster, Cluster) else Cluster.parse(workers=cluster)
    rule = rule_of(solver, {}) if isinstance(solver, str) else solver
    name = solver if isinstance(solver, str) else getattr(solver, "label", type(solver).__name__)
    if loop not in ("auto", "general"):
        raise unknown("loop", str(loop), ("auto", "general"))
    for what, value, least in (("nbytes", nbytes, 0), ("batch", batch, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"{what} must be a whole number from {least}, got {value!r}")
    amounts = [Amount(n, unit) for n, unit in ((updates, "updates"), (seconds, "seconds")) if n is not None]  # type: ignore[arg-type]
    if not amounts:
        raise ConfigError("a timing-only simulation needs a number of updates or seconds")
    plan = Plan(Idle(nbytes, batch=batch), rule, machines, Budget(amounts[-1]), seed=seed, batch=batch)
    limits = (inf if updates is None else updates, inf if seconds is None else seconds)
    what = f"the times of {counted(machines.workers, 'worker')} and their gradients"
    require(bytes_needed(plan, *limits), what, "use fewer workers or a smaller budget")
    started = time.perf_counter()
    found = None
    with uncollected():
        if loop == "auto" and slotted.why_not(rule, machines) is None:
            found = _fast(plan, limits, progress)
        used = "slotted" if found is not None else "general"
        facts, trace, per_worker = found or _general(plan, limits, progress)
    wall = time.perf_counter() - started
    return Timed(_summary(plan, name, used, facts, trace, per_worker, wall), trace, per_worker)


def bytes_needed(plan: Plan, updates: float, seconds: float) -> int:
    """About what a timing-only simulation holds: its workers, and a row for every gradient."""
    cluster, workers = plan.cluster, plan.cluster.workers
    gradients = updates * (workers if plan.solver.barrier else 1)
    if cluster.schedule is not None:
        gradients = min(gradients, len(cluster.schedule))
    elif seconds < inf:
        one = min(cluster.mean_compute(i, plan.batch) for i in (0, workers // 2, workers - 1))
        gradients = min(gradients, seconds / one * workers if one else inf)
    of_each = _WORKER + plan.solver.bytes_a_peer * workers
    return int(min(workers * of_each + _ROW * min(gradients, 1e15), 1e18))


def rule_of(given: str | type[Solver], options: dict[str, Any]) -> Solver:
    """A solver by name or of a class, for its timing alone."""
    kind = solvers.whole_class(given, given.__name__) if isinstance(given, type) else None
    name = given if isinstance(given, str) else given.__name__
    try:
        made: Solver = solvers.build(name, NoOptimizer, options, kind)
    except ConfigError:  # a few look at their optimizer; if this is not why, the same complaint comes again
        from torch.optim import SGD

        made = solvers.build(name, partial(SGD, lr=1.0), options, kind)
    return made


class NoOptimizer:
    """Stands for an optimizer where nothing is computed; making a real one would load half of torch."""

    def __init__(self, params: Any) -> None:
        self.param_groups = [{"params": list(params), "lr": 1.0}]


def _fast(plan: Plan, limits: tuple[float, float], progress: Progress) -> Any:
    updates, seconds = limits
    options = {"nbytes": plan.task.nbytes, "batch": plan.batch, "updates": updates, "seconds": seconds}
    found = slotted.run(plan.cluster, seed=plan.seed, tick=progress, **options)  # type: ignore[arg-type]
    if found is None:
        return None
    rows = len(found.columns["time"])
    known = {**found.columns, "outcome": pa.array([APPLIED]).take(pa.array(np.zeros(rows, dtype=np.int64)))}
    columns = [pa.array(known[f.name]).cast(f.type) if f.name in known else pa.nulls(rows, f.type) for f in TRACE]
    trace = pa.concat_tables([pa.table(columns, schema=TRACE), trace_table(found.tail)])
    return vars(found), trace, found.shares


def _general(plan: Plan, limits: tuple[float, float], progress: Progress) -> Any:
    feed = plan.feed()
    sim = Timing(plan.task, plan.solver, plan.cluster, feed, seed=plan.seed, resumable=False)
    sim.next_updates, sim.deadline = limits
    ended = sim.run(_Looker(sim, progress))
    if ended == "idle" and plan.cluster.schedule is None:
        raise ConfigError(f"no worker is left that could go on, after {sim.updates} updates")
    sim.finish()
    facts = {n: getattr(sim, n) for n in ("now", "updates", "bytes", "queued", "served")}
    return facts, trace_table(sim.rows), sim.breakdown()


class _Looker(ToTheMark):
    """Shows progress besides."""

    def __init__(self, sim: Timing, progress: Progress) -> None:
        self._sim, self._progress = sim, progress

    def tick(self) -> bool:
        self._progress(self._sim.updates, self._sim.now)
        return False


def _summary(
    plan: Plan,
    solver: str,
    loop: str,
    facts: dict[str, Any],
    trace: pa.Table,
    per_worker: list[dict[str, float]],
    wall: float,
) -> dict[str, Any]:
    import pyarrow.compute as pc

    applied = trace.filter(trace["applied"])
    taus = applied["staleness"].drop_null().to_numpy()
    present = sum(w["present"] for w in per_worker)
    now, updates = facts["now"], facts["updates"]
    samples = int(pc.sum(applied["samples"]).as_py() or 0)
    waits = pc.sum(pc.subtract(applied["time"], applied["computed"])).as_py() or 0.0

    def share(name: str) -> float | None:
        return sum(w[name] for w in per_worker) / present if present else None

    def quantile(q: float) -> float | None:
        return float(np.quantile(taus, q)) if len(taus) else None

    return {
        "status": "done",
        "solver": solver,
        "workers": plan.cluster.workers,
        "loop": loop,
        "updates": updates,
        "samples": samples,
        "virtual_seconds": now,
        "updates_per_virtual_second": updates / now if now else None,
        "samples_per_virtual_second": samples / now if now else None,
        "mean_staleness": float(taus.mean()) if len(taus) else None,
        "median_staleness": quantile(0.5),
        "p95_staleness": quantile(0.95),
        "max_staleness": int(taus.max()) if len(taus) else None,
        "computing_share": share("computing"),
        "delayed_share": share("delayed"),
        "communicating_share": share("communicating"),
        "idle_share": share("waiting"),
        "server_busy_share": facts["served"] / now if now else None,
        "mean_queue_length": facts["queued"] / now if now else None,
        "seconds_to_apply": waits / applied.num_rows if applied.num_rows else None,
        "bytes": facts["bytes"],
        "wall_seconds": wall,
        "updates_per_wall_second": updates / wall if wall else None,
    }
