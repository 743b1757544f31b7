"""The simulator without the lab around it: built, run for so many updates, its rows as dictionaries."""

import math
from collections.abc import Callable, Iterable, Mapping
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
from offbeat.lab.runs.plan import Plan
from offbeat.optim.steppers import OPTIMIZERS, optimizer_factory, start

NEVER = 10**12


class Stop:
    """The watcher of the tests: ends a run after so many updates, samples or ticks.

    every -- how many updates (samples, where those are limited) lie between two looks at the run; at its end is one too
    look -- called with the engine at each of them; the run ends when it says True
    """

    def __init__(
        self,
        *,
        updates: float = math.inf,
        samples: float = math.inf,
        ticks: float = math.inf,
        every: float = math.inf,
        look: Callable[[Any], object] | None = None,
    ) -> None:
        self.unit, self.limit = ("samples", samples) if samples < math.inf else ("updates", updates)
        self.ticks, self.every, self.look = ticks, every, look
        self.engine: Any = None

    def watch(self, engine: Any) -> "Stop":
        self.engine = engine
        self._next()
        return self

    def _next(self) -> None:
        """Asks to be called at the next look."""
        count = getattr(self.engine, self.unit)
        setattr(self.engine, f"next_{self.unit}", min(self.limit, count - count % self.every + self.every))

    def mark(self) -> bool:
        over = self.look is not None and bool(self.look(self.engine))
        self._next()
        return over or bool(getattr(self.engine, self.unit) >= self.limit)

    def tick(self) -> bool:
        self.ticks -= 1
        return self.ticks <= 0

    def suspicious(self, loss: float) -> bool:
        """Any loss will do, and need not be shown again: real processes stand still for it."""
        if self.engine is not None:
            self.engine.loss_limit = math.inf
        return False

    def show(self) -> None:
        """Somebody is waited for; so be it."""


class Path:
    """The parameters after every update, for `Stop(every=1, look=...)`."""

    def __init__(self) -> None:
        self.xs: list[Tensor] = []

    def __call__(self, engine: Any) -> None:
        self.xs.append(engine.point.x.clone())
        assert len(self.xs) == engine.updates, "more than one update in one event"


def build(task: Any, solver: Any, cluster: Cluster, *, seed: int = 0, batch: int = 1, **options: Any) -> Sim:
    """A simulator, with the feed that a plan of these settings would have."""
    settings = {k: options.pop(k) for k in ("partition", "sampling") if k in options}
    plan = Plan(task, solver, cluster, Budget.parse("1updates"), seed=seed, batch=batch, **settings)
    return Sim(task, solver, cluster, plan.feed(), seed=seed, **options)


def simulate(task: Any, solver: Any, cluster: Cluster, *, updates: float, keep: bool = False, **options: Any) -> Any:
    """Runs it; `.rows` of the result are those of the finished trace, `.xs` the parameters after every update."""
    sim = build(task, solver, cluster, **options)
    path = Path()
    stop = Stop(updates=updates, every=1, look=path) if keep else Stop(updates=updates)
    try:
        ended = sim.run(stop.watch(sim))
        sim.finish()
    finally:
        sim.close()
    return Outcome(sim, ended, path.xs)


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
