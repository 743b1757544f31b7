"""Tasks: what is optimised. The table below is all there is to registering one."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """A named task: where it is made, one line about it, and the settings that suit it."""

    path: str
    line: str
    defaults: Mapping[str, Any]


_LENET = {"optimizer.lr": 0.05, "data.batch": 32}

TASKS: Mapping[str, Entry] = {
    "quadratic": Entry(
        "offbeat.tasks.quadratic:Quadratic",
        "a quadratic with known answers and additive gradient noise",
        {"optimizer.lr": 0.1, "data.batch": 1, "budget.updates": 500, "evaluate.every": "10updates"},
    ),
    "digits": Entry(
        "offbeat.tasks.images:digits",
        "LeNet-5 on 1,797 scanned digits, embedded (32x32)",
        {**_LENET, "budget.epochs": 20, "evaluate.every": "0.5epochs"},
    ),
    "mnist": Entry("offbeat.tasks.images:mnist", "LeNet-5 on MNIST (28x28)", {**_LENET, "budget.epochs": 6}),
    "fashion-mnist": Entry(
        "offbeat.tasks.images:fashion_mnist", "LeNet-5 on Fashion-MNIST (28x28)", {**_LENET, "budget.epochs": 6}
    ),
    "word2vec": Entry(
        "offbeat.tasks.word2vec.task:Word2Vec",
        "skip-gram word embeddings on a text (text8, enwik8 or a file), row-sparse gradients",
        {
            "optimizer.lr": 0.025,
            "data.batch": 256,
            "budget.epochs": 1,
            "evaluate.every": "0.1epochs",
            "record.gap": False,
        },
    ),
}
