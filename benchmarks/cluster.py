"""The ray engine side by side with plain loops and with the parameter server of Ray's documentation. Ratios only.

    python benchmarks/cluster.py [--seconds 4] [--workers 2] [--repeats 5] [--only small|large]

Everything runs on this machine, in processes with one thread each; Ray listens on the loopback alone. Independent loops
of plain PyTorch run before and after every row, whose ratio is to the mean of the two.

- small: LeNet-5 on digits, batch 64: a message has 250 kB
- large: one layer of 24.6 million parameters, batch 8: a message has 98 MB, and the transport is nearly everything; a
  server in parts and sums among workers, too, which are made for several machines and share the cores of one here
"""

import argparse
import sys
from typing import Any

import torch
from torch.nn import functional as F

import offbeat
import ray_server
from beside import ratios, say, table
from local import BATCH, LR, Loops, model

WIDTH, WIDE_BATCH = 4960, 8
SMALL = {"offbeat asgd": 0.85, "offbeat sync": 0.80}
PAIRS = [
    ("offbeat asgd, two shards", "offbeat asgd, one shard"),
    ("offbeat allreduce, gloo", "offbeat allreduce"),
]
AGAINST_RAY = {"small": 2.5, "large": 1.5}


def wide() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(WIDTH, WIDTH)


def wide_data() -> tuple[torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(1)
    return torch.randn(64, WIDTH, generator=draws), torch.randint(WIDTH, (64,), generator=draws)


def ours(
    task: Any, solver: str, workers: int, seconds: float, batch: int, *, gap: bool = True, **options: Any
) -> float:
    """`gap`: whether it is recorded, which takes a pass over the vector for each gradient; shards cannot."""
    settings = {f"ray.{name}": value for name, value in options.items()} | {"record.gap": gap}
    run = offbeat.train(
        task,
        offbeat.solver(solver, lr=LR),
        workers,
        engine="ray",
        budget=f"{seconds}s",
        batch=batch,
        out=False,
        evaluate_every="1000epochs",
        settings=settings,
    )
    return float(run.summary["samples_per_second"])


def small(workers: int, seconds: float, repeats: int) -> bool:
    base = Loops(workers)
    rows = {
        "offbeat asgd": lambda: ours("digits", "asgd", workers, seconds, BATCH),
        "offbeat asgd, sockets": lambda: ours("digits", "asgd", workers, seconds, BATCH, shared_memory="off"),
        "offbeat asgd, encrypted": lambda: ours(
            "digits", "asgd", workers, seconds, BATCH, shared_memory="off", encryption="on"
        ),
        "offbeat asgd, actor calls": lambda: ours("digits", "asgd", workers, seconds, BATCH, transport="actor"),
        "offbeat sync": lambda: ours("digits", "sync", workers, seconds, BATCH),
        "Ray's parameter server": lambda: ray_server.samples_per_second(workers, seconds, BATCH, LR, model),
    }
    found, against = ratios(lambda: base.measure(seconds), rows, repeats)
    base.end()
    print(f"LeNet-5, batch {BATCH}, {workers} workers, as a ratio to {workers} independent loops; {repeats} repeats")
    return table(found, against, SMALL) | _beside_ray("small", found)


def large(workers: int, seconds: float, repeats: int) -> bool:
    x, y = wide_data()
    task = offbeat.task(wide, F.cross_entropy, (x, y), (x[:8], y[:8]))
    rows = {
        "offbeat asgd": lambda: ours(task, "asgd", workers, seconds, WIDE_BATCH),
        "offbeat asgd, sockets, in parts": lambda: ours(
            task, "asgd", workers, seconds, WIDE_BATCH, shared_memory="off"
        ),
        "offbeat asgd, one shard": lambda: ours(
            task, "asgd", workers, seconds, WIDE_BATCH, gap=False, shared_memory="off"
        ),
        "offbeat asgd, two shards": lambda: ours(task, "asgd", workers, seconds, WIDE_BATCH, gap=False, shards=2),
        "offbeat allreduce": lambda: ours(task, "allreduce", workers, seconds, WIDE_BATCH, shared_memory="off"),
        "offbeat allreduce, gloo": lambda: ours(task, "allreduce", workers, seconds, WIDE_BATCH, allreduce="gloo"),
        "Ray's parameter server": lambda: ray_server.samples_per_second(
            workers, seconds, WIDE_BATCH, LR, wide, wide_data, warm_up=2
        ),
    }
    found: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(repeats):
        for name, measure in rows.items():
            found[name].append(measure())
            say(f"{name}: {found[name][-1]:.1f} samples/s")
    print(f"24.6 million parameters, batch {WIDE_BATCH}, {workers} workers; {repeats} repeats")
    return _beside_ray("large", found) | _beside_each_other(found)


def _beside_ray(size: str, found: dict[str, list[float]]) -> bool:
    """Every row of ours as a ratio to Ray's server in the same repeat; the first has a bound."""
    ray, ours = found["Ray's parameter server"], [name for name in found if name.startswith("offbeat asgd")]
    against = {f"{n} / Ray's server": [a / b for a, b in zip(found[n], ray, strict=True)] for n in ours}
    values = {f"{n} / Ray's server": found[n] for n in ours}
    return table(values, against, {"offbeat asgd / Ray's server": AGAINST_RAY[size]})


def _beside_each_other(found: dict[str, list[float]]) -> bool:
    """What one way of doing it brings against the other, in the same repeat."""
    against = {f"{a} / {b}": [x / y for x, y in zip(found[a], found[b], strict=True)] for a, b in PAIRS}
    return table({f"{a} / {b}": found[a] for a, b in PAIRS}, against, {})


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["small", "large"])
    given = parser.parse_args()
    missed = False
    if given.only != "large":
        missed |= small(given.workers, given.seconds, given.repeats)
    if given.only != "small":
        missed |= large(given.workers, given.seconds, given.repeats)
    sys.exit(missed)
