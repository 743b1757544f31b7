"""How even a partition is: sizes, label histograms, and skew as total variation distances."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from offbeat.core.feed import Indices


def statistics(shards: Sequence[Indices] | None, size: int, workers: int, labels: Indices | None) -> dict[str, Any]:
    """Plain values for `partition.json`. Without shards everybody has everything.

    `label_skew` of a worker is the total variation distance 1/2 sum_c |p_i(c) - p(c)| between its labels and
    everybody's: 0 when it sees the same mixture, 1 - p(c) when it sees the label c alone. `size_skew` is that between
    the workers' shares of the samples and equal shares.
    """
    sizes = [size] * workers if shards is None else [len(s) for s in shards]
    share = np.asarray(sizes) / sum(sizes)
    out: dict[str, Any] = {
        "workers": workers,
        "samples": size,
        "sizes": sizes,
        "size_skew": float(np.abs(share - 1 / workers).sum() / 2),
    }
    if labels is None:
        return out
    present = np.unique(labels)
    position = np.searchsorted(present, labels)
    everybody = np.bincount(position, minlength=len(present))
    if shards is None:
        histograms = np.tile(everybody, (workers, 1))
    else:
        histograms = np.stack([np.bincount(position[s], minlength=len(present)) for s in shards])
    mixture = histograms / histograms.sum(1, keepdims=True)
    skew = np.abs(mixture - everybody / len(labels)).sum(1) / 2
    return out | {
        "labels": present.tolist(),
        "histograms": histograms.tolist(),
        "label_skew": skew.tolist(),
        "mean_label_skew": float(skew @ share),
    }
