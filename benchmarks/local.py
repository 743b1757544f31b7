"""The local engine side by side with what one would write without it. Ratios only; LeNet-5 on digits, batch 64.

    python benchmarks/local.py [--seconds 3] [--workers 2] [--repeats 9]

Each row runs alone, for so many seconds after a warm-up, in processes with one thread each. Two independent loops of
plain PyTorch, which share nothing, run before and after every row: its ratio is to the mean of the two, so that a
drift of the machine hits both.

- the loops, keeping the memory they free as our processes do (`keep_freed_memory`): the most that the machine can do
- the documented Hogwild pattern of PyTorch's examples (mp.spawn, share_memory, an optimizer each)
- offbeat: ASGD through the server, Hogwild!, synchronous SGD by the server and by all-reduce
- Ray's documented asynchronous parameter server (`ray_server.py`), if ray is installed
"""

import argparse
import sys
import time
from typing import Any

import torch
import torch.multiprocessing as mp
from torch.nn import functional as F

import offbeat
import ray_server
from beside import ratios, table
from offbeat.data.arrays import load
from offbeat.engines.real.machine import keep_freed_memory
from offbeat.tasks.models.lenet import lenet5

BATCH, LR = 64, 0.03
BOUNDS = {
    "offbeat asgd": 0.93,
    "offbeat hogwild": 0.97,
    "offbeat sync (server)": 0.85,
    "offbeat sync (all-reduce)": 0.85,
}


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return lenet5()


def loop(rank: int, shared: torch.nn.Module | None, keep: bool, orders: Any, counts: Any) -> None:
    """A plain training loop that trains for so many seconds each time it is told to, and says how many samples."""
    torch.set_num_threads(1)
    net = model() if shared is None else shared
    if keep:
        keep_freed_memory()
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
    counts.send(0)
    while seconds := orders.recv():
        end, done = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            step()
            done += BATCH
        counts.send(done)


class Loops:
    """Processes with a plain loop each. They wait between two measurements, so that starting them is not measured."""

    def __init__(self, workers: int, *, keep: bool = False, shared: bool = False) -> None:
        context = mp.get_context("spawn")
        one = model().share_memory() if shared else None
        self._lines, self._processes = [], []
        for rank in range(workers):
            theirs, orders = context.Pipe(duplex=False)
            counts, told = context.Pipe(duplex=False)
            process = context.Process(target=loop, args=(rank, one, keep, theirs, told), daemon=True)
            process.start()
            theirs.close()
            told.close()  # so that a loop that dies is noticed
            self._lines.append((orders, counts))
            self._processes.append(process)
        for _, counts in self._lines:
            counts.recv()

    def measure(self, seconds: float) -> float:
        """Samples per second of all loops together."""
        for orders, _ in self._lines:
            orders.send(seconds)
        return float(sum(counts.recv() for _, counts in self._lines)) / seconds

    def end(self) -> None:
        for (orders, _), process in zip(self._lines, self._processes, strict=True):
            orders.send(0)
            process.join()


def ours(solver: Any, workers: int, seconds: float, batch: int = BATCH) -> tuple[float, dict[str, Any]]:
    run = offbeat.train(
        "digits",
        solver,
        workers,
        engine="local",
        budget=f"{seconds}s",
        batch=batch,
        out=False,
        evaluate_every="1000epochs",
    )
    return run.summary["samples_per_second"], run.summary


def throughput(workers: int, seconds: float, repeats: int) -> bool:
    def rule(name: str, **options: Any) -> Any:
        return lambda: ours(offbeat.solver(name, lr=LR, **options), workers, seconds)[0]

    base, keeping, hogwild = Loops(workers), Loops(workers, keep=True), Loops(workers, shared=True)
    rows: dict[str, Any] = {
        "the loops, memory kept": lambda: keeping.measure(seconds),
        "PyTorch's Hogwild pattern": lambda: hogwild.measure(seconds),
        "offbeat asgd": rule("asgd"),
        "offbeat hogwild": rule("hogwild"),
        "offbeat sync (server)": rule("sync"),
        "offbeat sync (all-reduce)": rule("local-sgd", H=1),
    }
    obstacle = ray_server.obstacle()
    if obstacle is None:
        rows["Ray's parameter server"] = lambda: ray_server.samples_per_second(workers, seconds, BATCH, LR)
    found, against = ratios(lambda: base.measure(seconds), rows, repeats)
    for each in (base, keeping, hogwild):
        each.end()
    print(
        f"samples/s of {workers} workers, as a ratio to {workers} independent loops: median of {repeats}, middle half"
    )
    missed = table(found, against, BOUNDS)
    if obstacle is not None:
        print(f"  Ray's parameter server       -       ({obstacle})")
    return missed


def locks(seconds: float) -> None:
    """The claim of wongpanich2020, section 3.1: what the lock costs, by number of workers.

    With batches of 64 hardly anybody meets; with batches of 1 a gradient takes no longer than a few passes over the
    vector, and they do.
    """
    pairs = [
        ("locked SGD", offbeat.solver("hogwild", locked=True, lr=LR)),
        ("Hogwild!", offbeat.solver("hogwild", lr=LR)),
        ("round-robin EASGD", offbeat.solver("easgd", lr=LR)),
        ("EA-wild", offbeat.solver("ea-wild", lr=LR)),
    ]
    for batch in (BATCH, 1):
        print(f"\nbatch {batch}: updates/s, and share of time spent waiting for the lock or the turn")
        for name, rule in pairs:
            for workers in (1, 2, 4):
                _, s = ours(rule, workers, seconds, batch)
                rate = s["updates"] / s["wall_seconds"]
                lost = "" if s["lost_share"] is None else f"   lost {s['lost_share']:.2%}"
                what = f"{name:18} {workers} workers   {rate:7.1f} updates/s   waiting {s['idle_share']:.1%}{lost}"
                print("  " + what, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", choices=["throughput", "locks"])
    options = parser.parse_args()
    missed = options.only != "locks" and throughput(options.workers, options.seconds, options.repeats)
    if options.only != "throughput":
        locks(options.seconds)
    sys.exit(int(missed))
