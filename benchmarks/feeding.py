"""What does feeding cost? The share of a LeNet-5 training loop spent on choosing samples and putting batches together.

Measured inside one ordinary run, so that a slow machine slows both sides. Beside it, the same number of batches from
torch's DataLoader over the same tensors; and evaluation at its default pace, every second epoch on a test set of
10,000. Run: python benchmarks/feeding.py [--epochs 0.3]
"""

import argparse
import sys
import time
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import offbeat
from offbeat.core.feed import Feed
from offbeat.data.samples import TensorSamples
from offbeat.tasks.models.lenet import lenet5

FEEDING, EVALUATION = 0.03, 0.05  # limits, as shares of the loop
TRAIN, TEST, BATCH = 60_000, 10_000, 32


class Clock:
    """Adds up the time spent inside one method."""

    def __init__(self, kind: type, name: str) -> None:
        self.seconds, self.calls = 0.0, 0
        inner = getattr(kind, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - started
                self.calls += 1

        setattr(kind, name, timed)


def serial(function: Any, items: Any) -> list[Any]:
    return [function(i) for i in items]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=float, default=0.3)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    # The cost of feeding does not depend on what the pictures show.
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(TRAIN, 1, 28, 28, generator=generator), torch.randint(0, 10, (TRAIN,), generator=generator)
    task = offbeat.task(lambda: lenet5((1, 28, 28)), F.cross_entropy, (x, y))
    tested = offbeat.task(lambda: lenet5((1, 28, 28)), F.cross_entropy, (x, y), (x[:TEST], y[:TEST]))
    choosing, gathering = Clock(Feed, "indices"), Clock(TensorSamples, "batch")
    started = time.perf_counter()
    run = offbeat.train(task, "asgd", 4, budget=f"{epochs}epochs", batch=BATCH, out=False, pool=0)
    total = time.perf_counter() - started

    batches = run.summary["updates"]
    loader = iter(DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True))
    started = time.perf_counter()
    for _ in range(batches):
        next(loader)
    peer = time.perf_counter() - started

    tested.evaluate(tested.init(1), serial)  # the first finds out about the model, and warms up
    started = time.perf_counter()
    tested.evaluate(tested.init(0), serial)
    evaluation = (time.perf_counter() - started) / (total / batches * 2 * TRAIN / BATCH)

    share = (choosing.seconds + gathering.seconds) / total
    print(f"{batches:,} batches of {BATCH} through LeNet-5, one thread")
    print(f"choosing samples      {choosing.seconds / total:7.2%} of the loop")
    print(f"putting together      {gathering.seconds / total:7.2%}")
    print(f"feeding in all        {share:7.2%}  (limit {FEEDING:.0%})")
    print(
        f"torch's DataLoader    {peer / total:7.2%}  for the same batches, {peer / (share * total):.1f} times as much"
    )
    print(f"evaluation            {evaluation:7.2%}  every second epoch (limit {EVALUATION:.0%})")
    return 0 if share <= FEEDING and evaluation <= EVALUATION else 1


if __name__ == "__main__":
    sys.exit(main())
