"""What each solver's rule costs beside a gradient: time a gradient on LeNet-5, as a ratio to ASGD's.

The gradient is measured by itself, once; the rules run over LeNet-5's vector with a gradient that is ready, so that
microseconds can be told from the noise of milliseconds. All in CPU time of one thread, solvers interleaved, medians.
Every solver has its default options and plain SGD.

    python benchmarks/solver_overhead.py [--rounds 7] [--gradients 240] [--only fedbuff,dc-asgd]
"""

import argparse
import statistics
import time

import torch
from torch.nn import functional as F

import offbeat
from offbeat.core.effects import Gradient
from offbeat.core.feed import Feed
from offbeat.core.task import Point
from offbeat.engines.cluster import Cluster
from offbeat.engines.sim import Sim
from offbeat.lab.contract import Case
from offbeat.solvers import SOLVERS
from offbeat.tasks.models.lenet import lenet5

BATCH, WORKERS, LIMIT = 32, 4, 1.05


class Ready:
    """LeNet-5's parameters, and a gradient that costs nothing."""

    name, size = "ready", None

    def __init__(self) -> None:
        torch.manual_seed(0)
        x = torch.cat([p.detach().reshape(-1) for p in lenet5().parameters()])
        self.layout = offbeat.task(lenet5, F.cross_entropy, images(BATCH)).layout
        self.x, self.nbytes = x, x.nbytes
        self.g = [1e-3 * torch.randn_like(x) for _ in range(8)]

    def init(self, seed: int) -> Point:
        return Point(self.x)

    def gradient(self, point: Point, batch: object, key: int) -> Gradient:
        return Gradient(self.g[key % 8], 1.0, 1)


def images(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 1, 32, 32), torch.randint(0, 10, (n,))


def gradient_seconds() -> float:
    """The CPU time of one gradient of LeNet-5."""
    task = offbeat.task(lenet5, F.cross_entropy, images(BATCH))
    point, batch = task.init(0), Feed(BATCH, batch=BATCH, workers=1, seed=0).indices(0, 0)
    times = []
    for k in range(60):
        started = time.thread_time()
        task.gradient(point, batch, k)
        times.append(time.thread_time() - started)
    return statistics.median(times[10:])


class Until:
    def __init__(self, sim: Sim, gradients: int) -> None:
        self.sim, self.gradients = sim, gradients

    def mark(self) -> bool:
        return False

    def tick(self) -> bool:
        return sum(self.sim.feed.draws) >= self.gradients

    def suspicious(self, loss: float) -> bool:
        return False


def rule_seconds(solver: str, task: Ready, gradients: int) -> float:
    """The CPU time of engine and rule, a gradient."""
    workers = 1 if solver in ("plain", "constant-delay") else WORKERS
    machines = Cluster.parse(workers=workers, compute="normal(10ms,2ms)")
    sim = Sim(task, Case(solver).make(), machines, Feed(None, batch=1, workers=workers, seed=0), seed=0)
    sim.run(Until(sim, 3 * workers))  # buffers are made in the first steps
    before = sum(sim.feed.draws)
    started = time.thread_time()
    sim.run(Until(sim, before + gradients))
    took = time.thread_time() - started
    sim.close()
    return took / (sum(sim.feed.draws) - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--gradients", type=int, default=240)
    parser.add_argument("--only", help="solvers, by name, with commas")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [n for n in SOLVERS if not options.only or n in ("asgd", *options.only.split(","))]
    task, gradient = Ready(), gradient_seconds()
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            times[name].append(rule_seconds(name, task, options.gradients))
    base = gradient + statistics.median(times["asgd"])
    print(f"LeNet-5, batch {BATCH}: the gradient is {gradient / base:.1%} of a gradient's time under asgd")
    print(f"{'solver':18} {'ratio to asgd':>13}")
    for name, taken in sorted(times.items(), key=lambda item: statistics.median(item[1])):
        ratio = (gradient + statistics.median(taken)) / base
        print(f"{name:18} {ratio:13.3f}{'   above 5%' if ratio > LIMIT else ''}")


if __name__ == "__main__":
    main()
