"""How well a classifier does on each class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def class_scores(
    truth: NDArray[np.int64], predicted: NDArray[np.int64], num_classes: int, names: Sequence[str] | None = None
) -> dict[str, Any]:
    """Precision, recall, F1 and support of each class, their plain means, and the confusion matrix.

    `confusion[i][j]` counts samples of class i that were taken for j. A class that was never predicted has precision
    0, one without samples has recall 0; the means are over the classes that have samples.
    """
    # Not by sklearn.metrics: importing it takes seconds, at the end of every run.
    counts = np.bincount(truth * num_classes + predicted, minlength=num_classes**2)
    confusion = counts.reshape(num_classes, num_classes)
    hits, support, taken = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    precision, recall = hits / np.maximum(taken, 1), hits / np.maximum(support, 1)
    f1 = 2 * hits / np.maximum(support + taken, 1)
    seen = support > 0
    return {
        "classes": list(names) if names else list(range(num_classes)),
        "samples": len(truth),
        "accuracy": float((truth == predicted).mean()),
        "precision": precision.tolist(),
        "recall": recall.tolist(),
        "f1": f1.tolist(),
        "support": support.tolist(),
        "mean_precision": float(precision[seen].mean()),
        "mean_recall": float(recall[seen].mean()),
        "mean_f1": float(f1[seen].mean()),
        "confusion": confusion.tolist(),
    }
