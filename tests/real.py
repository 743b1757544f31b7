"""A run on a real engine, and the same run simulated: what the tests of real engines share."""

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import offbeat
from cases import CASES
from harness import Stop, mlp_task
from offbeat.core.feed import Feed
from offbeat.core.trace import Row
from offbeat.engines.cluster import Cluster
from offbeat.engines.debug import Debug
from offbeat.engines.local import Launcher, Local, Options
from offbeat.engines.ray.crew import Crew
from offbeat.engines.ray.on_ray import OnRay
from offbeat.engines.ray.wire import PART
from offbeat.engines.running.fit import lacking
from offbeat.engines.sim import Sim
from offbeat.lab.contract.recorder import Bowl

OVERLAPPING = [c for c in CASES if c.solver == "asgd" and "overlap" in c.options]
"""Workers compute while their messages are under way."""
ONE_OF_EACH = [
    *{
        c.solver: c
        for c in CASES
        if (c.workers > 1 or c.solver in ("plain", "constant-delay")) and c.options.get("overlap") is not True
    }.values(),
    *OVERLAPPING,
]
"""The last case of each solver whose workers wait, the one with most options; and those whose workers do not."""

REDUCING = ("allreduce", "hierarchical", "local-sgd", "slowmo", "diloco")
ORDERLY = [
    c for c in CASES if c.solver in ("sync", "easgd", "ea-msgd", *REDUCING) and c.options.get("order") != "arrival"
]
"""Methods whose result does not depend on who comes first: barriers and turns."""

QUOTA = 24
"""Gradients of each worker, of one sample each."""

ENGINES = {"on processes": Local, "on threads": Debug, "on ray": OnRay}
ON_ONE_MACHINE = ["on processes", "on threads"]
PLACES = [*ON_ONE_MACHINE, pytest.param("on ray", marks=pytest.mark.slow)]
CREW = 6
"""Workers of the largest case."""


def on(places, cases, on_ray=None):
    """The pairs that go together: without shared memory, some effects are not offered.

    A new process takes Ray seconds: tests that need many run only the solvers `on_ray` there.
    """
    return [
        pytest.param(name, c, marks=getattr(p, "marks", ()), id=f"{name}-{c}")
        for p in places
        for name in [getattr(p, "values", [p])[0]]
        for c in cases
        if lacking(ENGINES[name].asks, c.make()) is None
        if name != "on ray" or on_ray is None or c.solver in on_ray
    ]


def build(
    launcher: Launcher | Crew | None,
    rule: Any,
    *,
    workers: int = 2,
    task: Any = None,
    options: Options | None = None,
    feed: Feed | None = None,
    seed: int = 3,
    **cluster: Any,
) -> Any:
    """An engine: on processes that the launcher starts, those of a Ray, or (None) on threads of this process."""
    task = mlp_task() if task is None else task
    feed = feed or Feed(task.size, batch=8, workers=workers, seed=seed)
    machines = Cluster.parse(workers=workers, **cluster)
    options = options or Options(gap=True)
    if launcher is None:
        return Debug(task, rule, machines, feed, seed=seed, options=options)
    if isinstance(launcher, Crew):
        return OnRay(task, rule, machines, feed, seed=seed, options=options, crew=launcher)
    return Local(task, rule, machines, feed, seed=seed, options=options, launcher=launcher)


def setting(case: Any, delay: str = "0s", **options: Any) -> dict[str, Any]:
    """A run of this case on a small task, each worker with a part of its own to do."""
    workers = case.workers
    feed = Feed(None, batch=1, workers=workers, seed=7)
    return {
        "workers": workers,
        "task": Bowl(),
        "feed": feed,
        "seed": 7,
        "delay": delay,
        "options": Options(quota=QUOTA, gap=True, **options),
    }


def run(
    launcher: Launcher | Crew | None,
    rule: Any,
    *,
    updates: float = 20,
    stop: Stop | None = None,
    **setting: Any,
) -> Any:
    """To its end, with how it `ended` and `x` at its end; the engine, closed."""
    return to_its_end(build(launcher, rule, **setting), stop or Stop(updates=updates))


def to_its_end(engine: Any, stop: Stop) -> Any:
    try:
        engine.ended = engine.run(stop.watch(engine))
        engine.finish()
        engine.x = engine.point.x
    finally:
        engine.close()
    return engine


def simulated(
    rule: Any, *, workers: int = 2, updates: float = 20, task: Any = None, feed: Feed | None = None, **options: Any
) -> Sim:
    """The same on the simulator."""
    task = mlp_task() if task is None else task
    feed = feed or Feed(task.size, batch=8, workers=workers, seed=3)
    sim = Sim(task, rule, Cluster(workers=workers), feed, **{"seed": 3, "gap": True, **options})
    try:
        sim.run(Stop(updates=updates).watch(sim))
    finally:
        sim.close()
    return sim


def rows_of(engine: Any) -> list[Row]:
    return [Row(*r) for r in engine.rows]


def wide():
    torch.manual_seed(0)
    return torch.nn.Linear(1100, 1100)


def long_task():
    """Its vector goes in two parts."""
    draws = torch.Generator().manual_seed(1)
    x, y = torch.randn(16, 1100, generator=draws), torch.randint(1100, (16,), generator=draws)
    task = offbeat.task(wide, F.cross_entropy, (x, y), (x[:2], y[:2]))
    assert PART < task.init(3).x.nbytes < 2 * PART
    return task
