"""The simulator without the lab around it: built, run for so many updates, its rows as dictionaries."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import offbeat
from offbeat.core.budget import Budget
from offbeat.core.errors import ConfigError
from offbeat.core.layout import Layout
from offbeat.core.trace import Row
from offbeat.engines.cluster import Cluster
from offbeat.engines.sim import Sim
from offbeat.lab.plan import Plan
from offbeat.solvers.optimizers import OPTIMIZERS, optimizer_factory, start

NEVER = 10**12


class Stop:
    """A watcher that ends the run after so many updates, samples or events, and can keep x after every update."""

    def __init__(self, *, updates: float = math.inf, ticks: float = math.inf, keep: bool = False) -> None:
        self.updates, self.ticks, self.keep = updates, ticks, keep
        self.xs: list[Tensor] = []
        self.sim: Sim | None = None

    def watch(self, sim: Sim) -> "Stop":
        self.sim = sim
        sim.next_updates = 0 if self.keep else self.updates
        return self

    def mark(self) -> bool:
        assert self.sim is not None
        if self.keep and len(self.xs) < self.sim.updates:
            self.xs.append(self.sim.point.x.clone())
            assert len(self.xs) == self.sim.updates, "more than one update in one event"
        return self.sim.updates >= self.updates

    def tick(self) -> bool:
        self.ticks -= 1
        return self.ticks <= 0

    def suspicious(self, loss: float) -> bool:
        return False


def build(task: Any, solver: Any, cluster: Cluster, *, seed: int = 0, batch: int = 1, **options: Any) -> Sim:
    """A simulator, with the feed that a plan of these settings would have."""
    settings = {k: options.pop(k) for k in ("partition", "sampling") if k in options}
    plan = Plan(task, solver, cluster, Budget.parse("1updates"), seed=seed, batch=batch, **settings)
    return Sim(task, solver, cluster, plan.feed(), seed=seed, **options)


def simulate(task: Any, solver: Any, cluster: Cluster, *, updates: float, keep: bool = False, **options: Any) -> Any:
    """Runs it; `.rows` of the result are those of the finished trace, `.xs` the parameters after every update."""
    sim = build(task, solver, cluster, **options)
    try:
        stop = Stop(updates=updates, keep=keep).watch(sim)
        ended = sim.run(stop)
        sim.finish()
    finally:
        sim.close()
    return Outcome(sim, ended, stop.xs)


class Outcome:
    def __init__(self, sim: Sim, ended: str, xs: list[Tensor]) -> None:
        self.sim, self.ended, self.xs = sim, ended, xs
        self.rows = dicts(sim.rows)
        self.applied = [r for r in self.rows if r["applied"]]
        self.taus = [r["staleness"] for r in self.applied]
        self.x = sim.point.x


def dicts(rows: Iterable[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(Row._fields, row, strict=True)) for row in rows]


def cluster(workers: int = 1, **values: Any) -> Cluster:
    return Cluster.parse(workers=workers, **values)


def optimizer_options(name: str, wanted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Those of the wanted options that a named optimizer takes; None where it cannot serve a flat vector."""
    taken: dict[str, Any] = {}
    try:
        start(optimizer_factory(name, lr=0.01), torch.zeros(3), Layout.of([("x", (3,))]))
    except ConfigError:
        return None
    for option, value in wanted.items():
        try:
            optimizer_factory(name, lr=0.01, **{option: value})
        except ConfigError:
            continue
        taken[option] = value
    return taken


USABLE = [name for name in OPTIMIZERS if optimizer_options(name, {}) is not None]
"""Optimizers that take one-dimensional parameters."""


# -- small tasks ------------------------------------------------------------------------------------------------


class Mlp(nn.Module):
    """Two layers; `middle` goes in between (dropout, say), and a BatchNorm if asked for."""

    def __init__(self, middle: nn.Module | None = None, *, norm: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(12, 16)
        self.norm = nn.BatchNorm1d(16) if norm else nn.Identity()
        self.middle = nn.Identity() if middle is None else middle
        self.last = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(torch.relu(self.norm(self.first(x)))))


def points(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Four noisy clusters in twelve dimensions."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(4, 12, generator=torch.Generator().manual_seed(99))
    y = torch.randint(0, 4, (n,), generator=g)
    return centres[y] + torch.randn(n, 12, generator=g), y


def mlp_task(middle: Any = None, *, norm: bool = False, train: Any = None, test: bool = True, **options: Any) -> Any:
    """The task of an Mlp; `middle` is a function that makes the module in between."""

    def make() -> nn.Module:
        return Mlp(None if middle is None else middle(), norm=norm)

    return offbeat.task(
        make, F.cross_entropy, points(200) if train is None else train, points(60, 1) if test else None, **options
    )
