"""How stale are the gradients of asynchronous SGD? The clock alone, without training: jain2018, Figure 1."""

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.engines.cluster import Cluster
from offbeat.lab.studies import timing


def simulate(
    cluster: Cluster, updates: int, *, solver: str = "asgd", seed: int = 0, nbytes: int = 0, discard: float = 0.05
) -> NDArray[np.int64]:
    """The staleness of `updates` applied gradients, after a start (a share `discard` of them) that is thrown away."""
    if updates < 1:
        raise ConfigError(f"--updates must be a number from 1, got {updates}")
    if not 0 <= discard < 1:
        raise ConfigError(f"the share to discard must be from 0 to below 1, got {discard:g}")
    warm = max(int(discard * updates), 2 * cluster.workers if discard else 0)
    trace = timing.simulate(cluster, solver, updates=updates + warm, nbytes=nbytes, seed=seed).trace
    taus = trace.filter(trace["applied"])["staleness"].drop_null().to_numpy()
    if not len(taus):
        raise ConfigError(f"solver {solver!r} has no versions, so its gradients have no staleness")
    return np.asarray(taus[warm : warm + updates], np.int64)
