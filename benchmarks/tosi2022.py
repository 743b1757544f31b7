"""All-to-all exchange, 4 models a node: what staleness costs. The questions of Tosi et al. 2022, on a virtual cluster.

For each mini-batch and number of nodes: mean set staleness, train and held-out loss after the same number of words,
and the convergence-time ratio: the virtual time to a loss, on 1 node over that on N (their Figure 2; N is ideal).
Their Figure 3 is the losses at mini-batch 128. `--task lenet` is the same on dense LeNet-5 (digits), and `--nodes`
beyond 16 goes on "until observing the negative effects", the two questions they leave open.

The cluster is a model and its numbers are ours: a gradient takes 2 ms and 10 us a word, the generator node 0.45 us a
word (so that 64 models at mini-batch 128 are kept waiting as theirs were: mean staleness 55), messages 5 us inside a
node and 20 us between nodes. Beyond 64 models such a generator keeps more models waiting, and staleness grows no more:
`--generator 0.05` is nine times faster. The learning rate is fixed, the same for every pair whatever the mini-batch.
Frequent words are subsampled hard (1e-5), as the program they used does.

    python benchmarks/tosi2022.py [--task word2vec|lenet] [--nodes 1 4 16] [--batches 32 128 512 2048] [--generator US]
                                  [--json FILE]
"""

import argparse
import json
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

MODELS_A_NODE = 4
COMPUTE, COMPUTE_WORD, FEEDER_WORD = 2e-3, 10e-6, 0.45e-6
INSIDE, BETWEEN = 5e-6, 20e-6


def cluster(nodes: int, batch: int, feeder_word: float = FEEDER_WORD) -> dict[str, Any]:
    """N nodes of 4 models, and the node that makes mini-batches."""
    spans = [f"{n * MODELS_A_NODE}-{(n + 1) * MODELS_A_NODE - 1}" for n in range(nodes)]
    takes = COMPUTE + COMPUTE_WORD * batch
    return {
        "workers": nodes * MODELS_A_NODE,
        "compute": f"lognormal({takes * 1e3:g}ms, {takes * 100:g}ms)",
        "peers": [f"{BETWEEN * 1e6:g}us", *(f"{INSIDE * 1e6:g}us@{span}>{span}" for span in spans)],
        "feeder": f"{feeder_word * batch * 1e6:g}us",
    }


def settings(task: str, batch: int, chosen: argparse.Namespace) -> dict[str, Any]:
    shared = {"solver.name": "all-to-all", "data.batch": batch, "schedule.kind": "constant", "seed": chosen.seed}
    if task == "lenet":
        rate = {"optimizer.lr": chosen.lr or 0.01}
        return {**shared, "task.name": "digits", "budget.epochs": chosen.epochs, "evaluate.every": "0.5epochs", **rate}
    text = {
        "task.name": "word2vec",
        "task.data": "text8",
        "task.limit": f"{chosen.megabytes}MB",
        "task.dim": 64,
        "task.sample": chosen.sample,
    }
    rate = {"optimizer.lr": chosen.lr or 0.025}
    return {**shared, **text, **rate, "budget.epochs": chosen.epochs, "evaluate.every": f"{chosen.epochs / 40}epochs"}


def run(values: dict[str, Any]) -> dict[str, Any]:
    """One run in memory: its losses over virtual time, and its staleness."""
    from offbeat.lab.config import make
    from offbeat.lab.runs.execute import execute
    from offbeat.lab.runs.plan import build

    started = time.monotonic()
    done = execute(build(make(values)), None, checkpoint_seconds=1e9)
    columns = done.metrics.to_pydict()
    train = next((v for v in reversed(columns["train_loss"]) if v is not None), None)
    return {
        "status": done.status,
        "staleness": done.summary["mean_staleness"],
        "times": columns["time"],
        "losses": columns["loss"],
        "train_loss": train,
        "loss": columns["loss"][-1],
        "accuracy": done.summary["accuracy"],
        "waiting": done.summary["idle_share"],
        "wall": time.monotonic() - started,
    }


def time_to(found: dict[str, Any], target: float) -> float | None:
    """When the held-out loss first reached the target, between two evaluations by a straight line."""
    points = list(zip(found["times"], found["losses"], strict=True))
    for (t0, l0), (t1, l1) in pairwise(points):
        if l1 <= target:
            return t1 if l0 <= target else t0 + (t1 - t0) * (l0 - target) / (l0 - l1)
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", choices=("word2vec", "lenet"), default="word2vec")
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--batches", type=int, nargs="+", default=None)
    parser.add_argument("--megabytes", type=float, default=2)
    parser.add_argument("--epochs", type=float, default=None)
    parser.add_argument("--lr", type=float, default=None)
    parser.add_argument("--sample", type=float, default=1e-5)
    parser.add_argument("--generator", type=float, default=FEEDER_WORD * 1e6, help="us a word")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    chosen.epochs = chosen.epochs or (2 if chosen.task == "word2vec" else 20)
    batches = chosen.batches or ([32, 128, 512, 2048] if chosen.task == "word2vec" else [32])
    table = []
    print("batch nodes models staleness train_loss held_out accuracy ratio waiting  wall", flush=True)
    for batch in batches:
        reference: dict[str, Any] | None = None
        for nodes in chosen.nodes:
            found = run(
                {**settings(chosen.task, batch, chosen), "cluster": cluster(nodes, batch, chosen.generator * 1e-6)}
            )
            reference = reference or found
            # A loss that the first one reached at four fifths of its way.
            target = reference["losses"][round(0.8 * (len(reference["losses"]) - 1))]
            took, first = time_to(found, target), time_to(reference, target)
            ratio = None if took is None or first is None else first / took
            table.append({"batch": batch, "nodes": nodes, "models": 4 * nodes, "ratio": ratio, **found})
            shown = [found["staleness"], found["train_loss"], found["loss"], found["accuracy"], ratio, found["waiting"]]
            numbers = "  ".join("   -   " if v is None else f"{v:7.3f}" for v in shown)
            print(
                f"{batch:5d} {nodes:5d} {4 * nodes:6d} {numbers} {found['wall']:5.0f} s  {found['status']}", flush=True
            )
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
