"""Tasks: what is optimised. The table below is all there is to registering one."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from offbeat.tasks.models import MODELS


class NamedTask(NamedTuple):
    """A named task: where it is made, one line about it, the settings that suit it, its model if that can be chosen."""

    path: str
    line: str
    defaults: Mapping[str, Any]
    model: str | None = None


# A pass over the test set costs 3 to 7% of an epoch of training: every second epoch keeps it to a few percent.
_PICTURES = {"optimizer.lr": 0.05, "data.batch": 32, "budget.epochs": 6, "evaluate.every": "2epochs"}

TASKS: Mapping[str, NamedTask] = {
    "quadratic": NamedTask(
        "offbeat.tasks.quadratic:Quadratic",
        "a quadratic with known answers and additive gradient noise",
        {"optimizer.lr": 0.1, "data.batch": 1, "budget.updates": 500, "evaluate.every": "10updates"},
    ),
    "digits": NamedTask(
        "offbeat.tasks.images:digits",
        "1,797 scanned digits, embedded (32x32)",
        {**_PICTURES, "budget.epochs": 20},
        "lenet5",
    ),
    "mnist": NamedTask("offbeat.tasks.images:mnist", "MNIST (28x28)", _PICTURES, "lenet5"),
    "fashion-mnist": NamedTask("offbeat.tasks.images:fashion_mnist", "Fashion-MNIST (28x28)", _PICTURES, "lenet5"),
    "cifar10": NamedTask("offbeat.tasks.images:cifar10", "CIFAR-10 (32x32, colour)", _PICTURES, "cifar10-full"),
    "image-folder": NamedTask(
        "offbeat.tasks.image_folder:image_folder",
        "your own pictures: train/<class>/*.jpg and val/<class>/*.jpg in task.path (224x224)",
        _PICTURES,
        "resnet50",
    ),
    "sparse-logistic": NamedTask(
        "offbeat.tasks.sparse_logistic:SparseLogistic",
        "sparse logistic regression on generated data of known Omega, Delta and rho (Hogwild!)",
        {"optimizer.lr": 1.0, "data.batch": 4, "budget.epochs": 5, "evaluate.every": "0.5epochs"},
    ),
    "word2vec": NamedTask(
        "offbeat.tasks.word2vec.skipgram:Word2Vec",
        "skip-gram word embeddings on a text (text8, enwik8 or a file), row-sparse gradients",
        {
            "optimizer.lr": 0.025,
            "data.batch": 256,
            "budget.epochs": 1,
            "evaluate.every": "0.1epochs",
            "record.gap": False,
            "schedule.kind": "polynomial",
        },
    ),
}


def settings(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What suits a named task with the model that its options choose: the task's own settings, then the model's."""
    entry = TASKS[name]
    chosen = options.get("model", entry.model)
    known = entry.model is not None and isinstance(chosen, str) and chosen in MODELS
    own = MODELS[chosen].defaults if known else {}
    return {**entry.defaults, **own}
