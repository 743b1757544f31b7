"""Runs for the kill tests, by name, so that a process of its own can start or continue one."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness import cluster, mlp_task
from offbeat.core.budget import Amount, Budget
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import Plan
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.constant_delay import ConstantDelay
from offbeat.solvers.sync import Sync
from offbeat.tasks.quadratic import Quadratic

MOMENTUM = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
ADAM = partial(torch.optim.Adam, lr=0.003)


def plan(name: str, updates: int = 400) -> Plan:
    """`solver/task`, such as `asgd/dropout`."""
    solver_name, _, task_name = name.partition("/")
    workers = 1 if solver_name == "constant-delay" else 5
    solver: Any = {
        "asgd": lambda: ASGD(MOMENTUM),
        "asgd-adam": lambda: ASGD(ADAM),
        "sync": lambda: Sync(MOMENTUM),
        "constant-delay": lambda: ConstantDelay(ADAM, delay=4),
    }[solver_name]()
    task: Any = {
        "dropout": lambda: mlp_task(lambda: nn.Dropout(0.3), fingerprint="dropout"),
        "norm": lambda: mlp_task(lambda: nn.Dropout(0.3), norm=True, fingerprint="norm"),
        "global": lambda: mlp_task(lambda: nn.AlphaDropout(0.3), fingerprint="global"),
        "quadratic": lambda: Quadratic(20, noise=1.0),
    }[task_name]()
    machines = cluster(workers, compute="lognormal(10ms,5ms)", latency="1ms", service="exponential(1ms)")
    return Plan(
        task,
        solver,
        machines,
        Budget.parse(f"{updates}updates"),
        seed=7,
        batch=8,
        evaluate_every=Amount(50, "updates"),
        solver_name=solver_name,
        config={"task": {"name": name}},
        key=name,
    )


def run(name: str, updates: int, out: str, checkpoint_seconds: float, pool: int) -> None:
    """What the process does. Slower than it need be, so that it can be hit anywhere."""
    torch.set_num_threads(1)
    execute(plan(name, updates), Path(out), pool=pool, checkpoint_seconds=checkpoint_seconds)
