"""Samples a second of simulated asynchronous training against a plain one-thread PyTorch loop, on the same machine.

LeNet-5, batch 64, 60,000 pictures of 32 x 32: Fashion-MNIST if it is in the cache, random ones otherwise (the work is
the same). The plain loop gathers its batches the same way and has the same optimizer. It runs before and after every
simulation, whose ratio is taken to the mean of the two, so that a slow drift of the machine hits both; the median
counts.

    python benchmarks/throughput.py [--repeats 15] [--batches 500]
"""

import argparse
import statistics
import sys
import time
from functools import partial

import numpy as np
import torch
from torch.nn import functional as F

from offbeat.core.budget import Amount, Budget
from offbeat.core.errors import OffbeatError
from offbeat.data.arrays import load
from offbeat.engines.cluster import Cluster
from offbeat.lab.runs.conditions import cores
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import Plan
from offbeat.solvers.asgd import ASGD
from offbeat.tasks.models.lenet import lenet5
from offbeat.tasks.module import ModuleTask

BATCH = 64
BOUNDS = {16: 1.75, 1: 0.95}
OPTIMIZER = partial(torch.optim.SGD, lr=0.001, momentum=0.9)  # at 0.01, sixteen workers with momentum diverge


def pictures() -> tuple[str, tuple[torch.Tensor, torch.Tensor]]:
    """Fashion-MNIST's training set, or random numbers of its shape."""
    try:
        data = load("fashion-mnist", resize=32)
        return "Fashion-MNIST", (data.train_x, data.train_y)
    except OffbeatError:
        g = torch.Generator().manual_seed(0)
        x = torch.randn(60_000, 1, 32, 32, generator=g)
        return "random pictures", (x, torch.randint(0, 10, (60_000,), generator=g))


def plain(train: tuple[torch.Tensor, torch.Tensor], batches: int) -> float:
    """The loop that everybody writes: shuffle, gather, forward, backward, step."""
    torch.manual_seed(0)
    model = lenet5()
    optimizer = OPTIMIZER(model.parameters())
    order = torch.randperm(len(train[0]))
    started = time.perf_counter()
    for k in range(batches):
        at = order[(k * BATCH) % (len(order) - BATCH) :][:BATCH]
        x, y = train[0].index_select(0, at), train[1].index_select(0, at)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        loss.item()  # as a loop that prints its loss does
    return batches * BATCH / (time.perf_counter() - started)


def simulated(train: tuple[torch.Tensor, torch.Tensor], batches: int, workers: int) -> float:
    """`offbeat.train` as it is, without evaluations: trace, gap and all."""
    task = ModuleTask(lenet5, F.cross_entropy, train)
    cluster = Cluster.parse(workers=workers, compute="normal(10ms, 2ms)")
    budget = Budget(Amount(batches, "updates"))
    plan = Plan(task, ASGD(OPTIMIZER), cluster, budget, batch=BATCH, evaluate_every=Amount(10**9, "updates"))
    started = time.perf_counter()
    run = execute(plan, None)
    took = time.perf_counter() - started
    assert run.summary["updates"] == batches, f"{run.summary['status']}: {run.summary['why']}"
    return batches * BATCH / took


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--batches", type=int, default=500)
    args = parser.parse_args()
    torch.set_num_threads(1)
    name, train = pictures()
    print(f"LeNet-5 on {name}, batch {BATCH}, {cores()} cores; {args.repeats} repeats of {args.batches} batches")
    plain(train, 20)
    simulated(train, 20, 2)
    missed = False
    print(f"{'workers':>8} {'offbeat':>10} {'plain loop':>11} {'ratio':>7} {'middle half':>14} {'bound':>6}")
    for workers, bound in BOUNDS.items():
        ours, theirs = [], [plain(train, args.batches)]
        for _ in range(args.repeats):
            ours.append(simulated(train, args.batches, workers))
            theirs.append(plain(train, args.batches))
        ratios = [2 * s / (before + after) for s, before, after in zip(ours, theirs[:-1], theirs[1:], strict=True)]
        low, ratio, high = np.quantile(ratios, (0.25, 0.5, 0.75))
        missed |= ratio < bound
        rates = f"{statistics.median(ours):8,.0f}/s {statistics.median(theirs):9,.0f}/s"
        said = f"{workers:8} {rates} {ratio:7.2f} {low:6.2f} - {high:4.2f} {bound:6.2f}"
        print(said + ("  MISSED" if ratio < bound else ""), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
