"""How well a classifier does on each class, by scikit-learn."""

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
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    every = np.arange(num_classes)
    precision, recall, f1, support = precision_recall_fscore_support(truth, predicted, labels=every, zero_division=0.0)
    seen = support > 0
    return {
        "classes": list(names) if names else every.tolist(),
        "samples": len(truth),
        "accuracy": float((truth == predicted).mean()),
        "precision": precision.tolist(),
        "recall": recall.tolist(),
        "f1": f1.tolist(),
        "support": support.tolist(),
        "mean_precision": float(precision[seen].mean()),
        "mean_recall": float(recall[seen].mean()),
        "mean_f1": float(f1[seen].mean()),
        "confusion": confusion_matrix(truth, predicted, labels=every).tolist(),
    }
