"""How stale are the gradients of asynchronous SGD? A Monte-Carlo simulation of the timing alone: jain2018, Figure 1."""

from math import inf

import numpy as np
from numpy.typing import NDArray

from offbeat.core.budget import Amount, Budget
from offbeat.core.errors import ConfigError
from offbeat.engines.cluster import Cluster
from offbeat.engines.engine import ToTheMark
from offbeat.engines.sim import Sim
from offbeat.lab.plan import Plan
from offbeat.solvers import build as build_solver
from offbeat.solvers.optimizers import optimizer_factory
from offbeat.tasks.idle import Idle


def simulate(
    cluster: Cluster, updates: int, *, solver: str = "asgd", seed: int = 0, nbytes: int = 0, discard: float = 0.05
) -> NDArray[np.int64]:
    """The staleness of `updates` applied gradients, after a start (a share `discard` of them) that is thrown away."""
    if updates < 1:
        raise ConfigError(f"--updates must be a number from 1, got {updates}")
    if not 0 <= discard < 1:
        raise ConfigError(f"the share to discard must be from 0 to below 1, got {discard:g}")
    warm = max(int(discard * updates), 2 * cluster.workers if discard else 0)
    task = Idle(nbytes)
    rule = build_solver(solver, optimizer_factory("sgd", lr=1.0), {})
    plan = Plan(task, rule, cluster, Budget(Amount(updates, "updates")), seed=seed, batch=1)
    sim = Sim(task, rule, cluster, plan.feed(), seed=seed, resumable=False)
    sim.next_updates, sim.loss_limit = updates + warm, inf
    try:
        sim.run(ToTheMark())
    finally:
        sim.close()
    taus = [row[6] for row in sim.rows if row[8] and row[6] is not None]
    if not taus:
        raise ConfigError(f"solver {solver!r} has no versions, so its gradients have no staleness")
    return np.asarray(taus[warm : warm + updates], np.int64)
