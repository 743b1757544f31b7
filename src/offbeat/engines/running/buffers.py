"""Buffers of a model (BatchNorm's statistics): each worker keeps its own, and evaluation takes their mean."""

from collections.abc import Sequence

from offbeat.core.reduction import weighted_mean
from offbeat.core.task import Buffers


def mean_buffers(initial: Buffers, owned: Sequence[Buffers]) -> Buffers:
    """The mean over the workers, in worker order; of whole numbers, which count, the largest."""
    held = [b for b in owned if b is not None]
    if initial is None or not held:
        return initial
    out = {}
    for name, tensor in initial.items():
        values = [b[name] for b in held]
        if tensor.is_floating_point():
            out[name] = weighted_mean(values, [1.0] * len(values))
        else:
            out[name] = max(values, key=lambda v: v.sum().item())
    return out
