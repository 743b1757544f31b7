"""The steps of one worker, as a recording tells them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Steps:
    """How long each step took, in order."""

    who: str
    seconds: NDArray[np.float64]
    started: NDArray[np.float64] | None = None
    """When each began, from the first of the file; None where nobody knows."""
    samples: NDArray[np.int64] | None = None
    """Of each step's batch; None where nobody knows."""
