"""What the tests of methods without a parameter server share."""

from functools import partial
from typing import Any

import numpy as np
import torch

from harness import Stop, build
from offbeat.core.effects import Gradient
from offbeat.core.layout import Layout
from offbeat.core.seeds import key64
from offbeat.core.task import Point
from offbeat.tasks.quadratic import Quadratic


def sgd(lr: float, **options: Any) -> Any:
    return partial(torch.optim.SGD, lr=lr, **options)


def gradient_of(task: Quadratic, seed: int = 0) -> Any:
    """The worker's k-th gradient, in numpy, for the oracles."""

    def gradient(x: np.ndarray, worker: int, k: int) -> np.ndarray:
        return task.gradient(Point(torch.tensor(x)), None, key64(seed, "model", worker, k)).value.numpy()

    return gradient


class Quartic(Quadratic):
    """Gradient h x^3 and noise: where steps are not linear, what a mean is taken of matters."""

    def gradient(self, point: Point, batch: Any, key: int) -> Gradient:
        g = super().gradient(point, batch, key)
        g.value = g.value + self.h * (point.x**3 - point.x)
        return g


class Flat:
    """A task without slope: what moves, moves by exchanges alone."""

    name, size, nbytes = "flat", None, 16
    layout = Layout.of([("x", (2,))])

    def init(self, seed: int) -> Point:
        return Point(torch.zeros(2, dtype=torch.float64))

    def gradient(self, point: Point, batch: Any, key: int) -> Gradient:
        return Gradient(torch.zeros_like(point.x), 0.0, 1)


def spread(kind: type, *args: Any, **options: Any) -> Any:
    """The solver, with worker i starting at (i, i^2) instead of the common point."""

    class Spread(kind):  # type: ignore[misc]
        def init_worker(self, rank: int, x0: Any, world: Any) -> Any:
            return super().init_worker(rank, torch.tensor([float(rank), float(rank**2)], dtype=torch.float64), world)

    return Spread(*args, **options)


def starts(workers: int) -> np.ndarray:
    return np.array([[i, i**2] for i in range(workers)], dtype=float)


def run_for(seconds: float, task: Any, solver: Any, machines: Any, **options: Any) -> Any:
    """The simulator after so many virtual seconds, its books open."""
    sim = build(task, solver, machines, **options)
    sim.deadline = seconds
    try:
        sim.run(Stop())
    finally:
        sim.close()
    return sim
