"""Proposition 1 of wongpanich2020, the bound of Hogwild! (Niu et al. 2011): a step size and a number of updates.

    gamma = theta epsilon c / (2 L M^2 (1 + 6 rho tau + 4 tau^2 Omega Delta^(1/2)))                            (8)
    k >= 2 L M^2 (1 + 6 rho tau + 6 tau^2 Omega Delta^(1/2)) log(L D_0 / epsilon) / (c^2 theta epsilon)        (9)

after which E[f(w_k) - f*] <= epsilon, for a convex f whose terms touch few components each; (8) has 4 tau^2 where (9)
has 6, as printed. Omega, Delta and rho are those of the data (`tasks/sparsity.py`). L (of the gradient), c (strong
convexity), M (the largest gradient of one term) and D_0 (the squared distance to the solution) are measured on a
sparse logistic regression: L is the largest eigenvalue of a bound of the Hessian, c its weight decay, and M is taken
over the initial point and the solution, which is less than the supremum that the proof asks for.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from inspect import signature
from math import ceil, log, sqrt
from typing import Any

import numpy as np

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.typed import check_options
from offbeat.tasks.sparse_logistic import SparseLogistic

MOST_UPDATES = 500_000
"""Of a check; a bound of more is told, not run."""


@dataclass(frozen=True)
class Measured:
    """What the proposition asks of a problem."""

    omega: int
    delta: float
    rho: float
    L: float
    M: float
    c: float
    D0: float
    best: float
    """f*, the value of the objective at its solution."""
    features: int


@dataclass(frozen=True)
class Bound:
    """What the proposition says."""

    tau: int
    gamma: float
    k: int
    slower: float
    """How many times as many updates as without a lag."""
    holds: bool
    """Whether gamma c < 1, which it needs."""


def bound(m: Measured, tau: int, epsilon: float, theta: float) -> Bound:
    """(8) and (9)."""
    if not 0 < theta < 1:
        raise ConfigError(f"theta must lie between 0 and 1, got {theta:g}")
    if not 0 < epsilon < m.L * m.D0:
        raise ConfigError(f"epsilon must lie between 0 and L D_0 = {m.L * m.D0:.3g}, got {epsilon:g}")
    if tau < 0:
        raise ConfigError(f"tau must be a number of updates from 0, got {tau}")
    lag = tau**2 * m.omega * sqrt(m.delta)
    gamma = theta * epsilon * m.c / (2 * m.L * m.M**2 * (1 + 6 * m.rho * tau + 4 * lag))
    factor = 1 + 6 * m.rho * tau + 6 * lag
    k = 2 * m.L * m.M**2 * factor * log(m.L * m.D0 / epsilon) / (m.c**2 * theta * epsilon)
    return Bound(tau, gamma, ceil(k), factor, gamma * m.c < 1)


def made(options: Mapping[str, Any]) -> SparseLogistic:
    """The problem; a wrong option lists the right ones."""
    known = list(signature(SparseLogistic).parameters)
    for name in options:
        if name not in known:
            raise unknown("option of task sparse-logistic", name, known)
    check_options(SparseLogistic, options, "task")
    return SparseLogistic(**options)


def measure(task: SparseLogistic) -> Measured:
    """The constants of a sparse logistic regression; its solution by Newton's method."""
    if task.l2 <= 0:
        raise ConfigError("the proposition needs a strongly convex problem: task.l2 must be above 0")
    z, y = (part.numpy() for part in task.dense())
    hessian_bound = z.T @ z / (4 * len(y)) + task.l2 * np.eye(task.features)
    solution = _newton(z, y, task.l2)
    points = (np.zeros(task.features), solution)
    largest = max(float(np.linalg.norm(_terms(task, z, y, x), axis=1).max()) for x in points)
    return Measured(
        **task.sparsity._asdict(),
        L=float(np.linalg.eigvalsh(hessian_bound)[-1]),
        M=largest,
        c=task.l2,
        D0=float(solution @ solution),
        best=objective(z, y, task.l2, solution),
        features=task.features,
    )


def objective(z: Any, y: Any, l2: float, x: Any) -> float:
    """f(x) over the training set."""
    return float(np.logaddexp(0, -y * (z @ x)).mean() + l2 / 2 * (x @ x))


def check(options: Mapping[str, Any], workers: int, epsilon: float, theta: float, seeds: int) -> dict[str, Any]:
    """Runs Hogwild! with the proposition's step size for its number of updates, and measures f - f*."""
    import offbeat

    task = made(options)
    m = measure(task)
    z, y = (part.numpy() for part in task.dense())
    # Equal threads that read and add in no time at all lag by one less than there are.
    found = bound(m, workers - 1, epsilon, theta)
    if found.k > MOST_UPDATES:
        raise ConfigError(f"the bound is {found.k:,} updates, more than the {MOST_UPDATES:,} that are run")
    gaps, lags = [], []
    for seed in range(seeds):
        run = offbeat.train(
            task, "hogwild", workers, lr=found.gamma, batch=1, budget=f"{found.k}updates", seed=seed, out=False,
            compute="1ms", sampling="replacement", progress=False, gap=False,
            evaluate_every=f"{found.k}updates",
        )  # fmt: skip
        gaps.append(objective(z, y, m.c, run.params.numpy()) - m.best)
        lags.append(int(run.summary["max_staleness"]))
    mean = float(np.mean(gaps))
    verdict = "holds" if mean <= epsilon else "does not hold"
    if max(lags) > found.tau:
        verdict += f" (although the largest lag was {max(lags)}, beyond tau)"
    told = {"epsilon": epsilon, "measured": mean, "largest_lag": max(lags), "check": verdict}
    return {**asdict(m), **asdict(found), **told}


def _terms(task: SparseLogistic, z: Any, y: Any, x: Any) -> Any:
    """The gradient of each term, as a row: that of a sample's loss, and its share of the decay."""
    slope = -y / (1 + np.exp(y * (z @ x)))
    return slope[:, None] * z + (z != 0) * task.decay.numpy() * x


def _newton(z: Any, y: Any, l2: float) -> Any:
    x = np.zeros(z.shape[1])
    for _ in range(100):
        p = 1 / (1 + np.exp(y * (z @ x)))
        gradient = -(z * (y * p)[:, None]).mean(0) + l2 * x
        hessian = (z * (p * (1 - p))[:, None]).T @ z / len(y) + l2 * np.eye(len(x))
        step = np.linalg.solve(hessian, gradient)
        x = x - step
        if float(np.abs(step).max()) < 1e-12:
            break
    return x
