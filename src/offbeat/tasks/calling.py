"""How a model is given its inputs, one by position, several by position or by name, as its `forward` takes them; and
what its loss must be.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any

from torch import Tensor, nn

from offbeat.core.errors import ConfigError


def call(model: nn.Module, inputs: Any) -> Any:
    """The model's output.

    A tuple of inputs goes by position and a dict by name, where forward takes such; else each is one argument.
    """
    if isinstance(inputs, Mapping):
        return model(**inputs) if _takes(model, **inputs) else model(inputs)
    if isinstance(inputs, tuple):
        return model(*inputs) if _takes(model, *inputs) else model(inputs)
    return model(inputs)


def one_number(loss: Any) -> Tensor:
    """What a loss function gave, if it is what it should be."""
    if isinstance(loss, Tensor) and loss.numel() == 1:
        return loss
    got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
    raise ConfigError(f"the loss must give a tensor with one number, the mean over the batch, got {got}")


@contextmanager
def refuse_gpu() -> Iterator[None]:
    """In our words, what torch says when a model is made on a GPU that is not there."""
    try:
        yield
    except (AssertionError, RuntimeError) as e:
        if "cuda" not in str(e).lower():
            raise
        raise ConfigError('the model asks for a GPU, and offbeat computes on the CPU: leave out .to("cuda")') from None


def _takes(model: nn.Module, *inputs: Any, **named: Any) -> bool:
    try:
        signature(model.forward).bind(*inputs, **named)
    except (TypeError, ValueError):  # it does not, or does not say
        return False
    return True
