"""Training out of sync, on purpose.

import offbeat

run = offbeat.train("digits", "asgd", offbeat.Cluster.parse(workers=8, delay="30ms@0"), budget="20epochs")
print(run.summary["accuracy"], run.summary["mean_staleness"], run.summary["virtual_seconds"])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offbeat.core.budget import Amount as Amount
    from offbeat.core.budget import Budget as Budget
    from offbeat.core.budget import Target as Target
    from offbeat.core.errors import ConfigError as ConfigError
    from offbeat.core.errors import OffbeatError as OffbeatError
    from offbeat.engines.cluster import Cluster as Cluster
    from offbeat.lab.api import named_task as named_task
    from offbeat.lab.api import solver as solver
    from offbeat.lab.api import task as task
    from offbeat.lab.api import train as train
    from offbeat.lab.result import Run as Run
    from offbeat.lab.timing import simulate as simulate
    from offbeat.report.read import load as load
    from offbeat.solvers.delayed import Delayed as Delayed
    from offbeat.solvers.parameter_server import ParameterServer as ParameterServer

# Imported when first used: `offbeat --help` must answer before torch has loaded.
_WHERE = {
    "Amount": "offbeat.core.budget",
    "Budget": "offbeat.core.budget",
    "Cluster": "offbeat.engines.cluster",
    "ConfigError": "offbeat.core.errors",
    "Delayed": "offbeat.solvers.delayed",
    "OffbeatError": "offbeat.core.errors",
    "ParameterServer": "offbeat.solvers.parameter_server",
    "Run": "offbeat.lab.result",
    "Target": "offbeat.core.budget",
    "load": "offbeat.report.read",
    "named_task": "offbeat.lab.api",
    "simulate": "offbeat.lab.timing",
    "solver": "offbeat.lab.api",
    "task": "offbeat.lab.api",
    "train": "offbeat.lab.api",
}

__all__ = list(_WHERE)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'offbeat' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*_WHERE, "__version__"]
