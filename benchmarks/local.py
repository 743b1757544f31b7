"""The local engine side by side with what one would write without it. Ratios only; LeNet-5 on digits, batch 64.

    python benchmarks/local.py [--seconds 6] [--workers 2]

Each row runs alone, for so many seconds after a warm-up, in processes with one thread each:

- two independent loops: plain PyTorch, nothing shared: the most that the machine can do; all else is a ratio to it
- the documented Hogwild pattern of PyTorch's examples (mp.spawn, share_memory, an optimizer each)
- offbeat: ASGD through the server, Hogwild!, synchronous SGD by the server and by all-reduce
- Ray's documented asynchronous parameter server, if ray is installed
"""

import argparse
import importlib.util
import statistics
import time
from typing import Any

import torch
import torch.multiprocessing as mp
from torch.nn import functional as F

import offbeat
from offbeat.tasks.arrays import load
from offbeat.tasks.models.lenet import lenet5

BATCH, LR = 64, 0.03


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return lenet5()


def loop(net: torch.nn.Module, rank: int, seconds: float, counts: Any, gate: Any) -> None:
    """A plain training loop; counts samples between two moments that all loops share."""
    torch.set_num_threads(1)
    data = load("digits")
    x, y = data.train_x, data.train_y
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    draws = torch.Generator().manual_seed(rank)
    order, at = torch.randperm(len(x), generator=draws), 0

    def step() -> None:
        nonlocal order, at
        if at + BATCH > len(x):
            order, at = torch.randperm(len(x), generator=draws), 0
        batch, at = order[at : at + BATCH], at + BATCH
        optimizer.zero_grad()
        # As DataLoader and offbeat put batches together. With x[batch], one channel of pictures keeps strides that
        # oneDNN takes for channels-last, and convolutions are a quarter faster: on both sides, or on none.
        inputs, target = x.index_select(0, batch), y.index_select(0, batch)
        F.cross_entropy(net(inputs), target).backward()
        optimizer.step()

    for _ in range(10):
        step()
    gate.wait()
    end, done = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        step()
        done += BATCH
    counts[rank] = done


def _independent(rank: int, seconds: float, counts: Any, gate: Any) -> None:
    loop(model(), rank, seconds, counts, gate)


def _hogwild(rank: int, net: torch.nn.Module, seconds: float, counts: Any, gate: Any) -> None:
    loop(net, rank, seconds, counts, gate)


def loops(workers: int, seconds: float, shared: bool) -> float:
    """Samples per second of all loops together."""
    context = mp.get_context("spawn")
    counts, gate = context.Array("q", workers), context.Barrier(workers)
    net = model()
    net.share_memory()
    arguments = (net, seconds, counts, gate) if shared else (seconds, counts, gate)
    mp.spawn(_hogwild if shared else _independent, args=arguments, nprocs=workers)
    return sum(counts) / seconds


def ours(solver: Any, workers: int, seconds: float) -> tuple[float, dict[str, Any]]:
    run = offbeat.train(
        "digits",
        solver,
        workers,
        engine="local",
        budget=f"{seconds}s",
        batch=BATCH,
        out=False,
        evaluate_every="1000epochs",
    )
    return run.summary["samples_per_second"], run.summary


def throughput(workers: int, seconds: float, repeats: int) -> None:
    rows: list[tuple[str, Any]] = [
        ("independent loops", lambda: loops(workers, seconds, shared=False)),
        ("PyTorch's Hogwild pattern", lambda: loops(workers, seconds, shared=True)),
        ("offbeat asgd", lambda: ours(offbeat.solver("asgd", lr=LR), workers, seconds)[0]),
        ("offbeat hogwild", lambda: ours(offbeat.solver("hogwild", lr=LR), workers, seconds)[0]),
        ("offbeat sync (server)", lambda: ours(offbeat.solver("sync", lr=LR), workers, seconds)[0]),
        ("offbeat sync (all-reduce)", lambda: ours(offbeat.solver("local-sgd", H=1, lr=LR), workers, seconds)[0]),
    ]
    found: dict[str, list[float]] = {name: [] for name, _ in rows}
    for _ in range(repeats):  # interleaved, so that all rows see the same machine
        for name, measure in rows:
            found[name].append(measure())
    base = found["independent loops"]
    print(f"samples/s of {workers} workers, as a ratio to {workers} independent loops (median of {repeats})")
    for name, values in found.items():
        ratios = [v / b for v, b in zip(values, base, strict=True)]
        print(f"  {name:28} {statistics.median(ratios):.3f}   ({statistics.median(values):.0f} samples/s)")
    if importlib.util.find_spec("ray") is None:
        print("  Ray's parameter server       -       (ray is not installed)")


def locks(seconds: float, most: int) -> None:
    """The claim of wongpanich2020, section 3.1: what the lock costs, by number of workers."""
    print("\nupdates/s, and share of time spent waiting for the lock or the turn")
    pairs = [
        ("locked SGD", offbeat.solver("hogwild", locked=True, lr=LR)),
        ("Hogwild!", offbeat.solver("hogwild", lr=LR)),
        ("round-robin EASGD", offbeat.solver("easgd", lr=LR)),
        ("EA-wild", offbeat.solver("ea-wild", lr=LR)),
    ]
    for name, rule in pairs:
        for workers in range(1, most + 1):
            _, s = ours(rule, workers, seconds)
            rate = s["updates"] / s["wall_seconds"]
            lost = "" if s["lost_share"] is None else f"   lost {s['lost_share']:.2%}"
            print(f"  {name:20} {workers} workers   {rate:7.1f} updates/s   waiting {s['idle_share']:.1%}{lost}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=["throughput", "locks"])
    options = parser.parse_args()
    if options.only != "locks":
        throughput(options.workers, options.seconds, options.repeats)
    if options.only != "throughput":
        locks(options.seconds, options.workers + 2)
