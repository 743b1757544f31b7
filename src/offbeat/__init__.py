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
    from offbeat.core.effects import AllReduce as AllReduce
    from offbeat.core.effects import Applied as Applied
    from offbeat.core.effects import Await as Await
    from offbeat.core.effects import Batch as Batch
    from offbeat.core.effects import Call as Call
    from offbeat.core.effects import Cancel as Cancel
    from offbeat.core.effects import Grad as Grad
    from offbeat.core.effects import Gradient as Gradient
    from offbeat.core.effects import Lock as Lock
    from offbeat.core.effects import Mix as Mix
    from offbeat.core.effects import Push as Push
    from offbeat.core.effects import Received as Received
    from offbeat.core.effects import Reduced as Reduced
    from offbeat.core.effects import Refused as Refused
    from offbeat.core.effects import Reply as Reply
    from offbeat.core.effects import Send as Send
    from offbeat.core.effects import SharedAdd as SharedAdd
    from offbeat.core.effects import SharedRead as SharedRead
    from offbeat.core.effects import Stepped as Stepped
    from offbeat.core.effects import Stop as Stop
    from offbeat.core.effects import Unlock as Unlock
    from offbeat.core.effects import View as View
    from offbeat.core.effects import Wait as Wait
    from offbeat.core.errors import ConfigError as ConfigError
    from offbeat.core.errors import OffbeatError as OffbeatError
    from offbeat.core.solver import Shown as Shown
    from offbeat.core.solver import Solver as Solver
    from offbeat.core.solver import World as World
    from offbeat.core.task import Point as Point
    from offbeat.core.task import Task as Task
    from offbeat.engines.cluster import Cluster as Cluster
    from offbeat.lab.api import named_task as named_task
    from offbeat.lab.api import solver as solver
    from offbeat.lab.api import task as task
    from offbeat.lab.api import train as train
    from offbeat.lab.papers.reproducing import Reproduction as Reproduction
    from offbeat.lab.papers.reproducing import reproduce as reproduce
    from offbeat.lab.runs.another_number import scale as scale
    from offbeat.lab.runs.result import Run as Run
    from offbeat.lab.studies.calibrate import Calibration as Calibration
    from offbeat.lab.studies.calibrate import calibrate as calibrate
    from offbeat.lab.studies.clocking import time as time
    from offbeat.lab.studies.comparing import Comparison as Comparison
    from offbeat.lab.studies.comparing import compare as compare
    from offbeat.lab.studies.dry_run import DryRun as DryRun
    from offbeat.lab.studies.more_workers import Scaling as Scaling
    from offbeat.lab.studies.sweep import Sweep as Sweep
    from offbeat.lab.studies.sweeping import sweep as sweep
    from offbeat.lab.studies.timing import simulate as simulate
    from offbeat.lab.studies.timings import Timings as Timings
    from offbeat.lab.validation.validate import Validation as Validation
    from offbeat.lab.validation.validate import validate as validate
    from offbeat.optim.delayed import Delayed as Delayed
    from offbeat.report.pages.build import report as report
    from offbeat.report.read import load as load
    from offbeat.solvers.options import additive as additive
    from offbeat.solvers.options import choice as choice
    from offbeat.solvers.options import flag as flag
    from offbeat.solvers.options import number as number
    from offbeat.solvers.options import plain_sgd as plain_sgd
    from offbeat.solvers.options import whole as whole
    from offbeat.solvers.parameter_server import Arrival as Arrival
    from offbeat.solvers.parameter_server import Held as Held
    from offbeat.solvers.parameter_server import ParameterServer as ParameterServer
    from offbeat.solvers.parameter_server import Server as Server
    from offbeat.solvers.parameter_server import Worker as Worker
    from offbeat.solvers.replica import StepsOnWorkers as StepsOnWorkers

# Imported when first used: `offbeat --help` must answer before torch has loaded.
_NAMES = {
    "offbeat.core.budget": (
        "Amount",
        "Budget",
        "Target",
    ),
    "offbeat.core.effects": (
        "AllReduce",
        "Applied",
        "Await",
        "Batch",
        "Call",
        "Cancel",
        "Grad",
        "Gradient",
        "Lock",
        "Mix",
        "Push",
        "Received",
        "Reduced",
        "Refused",
        "Reply",
        "Send",
        "SharedAdd",
        "SharedRead",
        "Stepped",
        "Stop",
        "Unlock",
        "View",
        "Wait",
    ),
    "offbeat.core.errors": (
        "ConfigError",
        "OffbeatError",
    ),
    "offbeat.core.solver": (
        "Shown",
        "Solver",
        "World",
    ),
    "offbeat.core.task": (
        "Point",
        "Task",
    ),
    "offbeat.engines.cluster": ("Cluster",),
    "offbeat.lab.api": (
        "named_task",
        "solver",
        "task",
        "train",
    ),
    "offbeat.lab.papers.reproducing": ("Reproduction", "reproduce"),
    "offbeat.lab.runs.result": ("Run",),
    "offbeat.lab.runs.another_number": ("scale",),
    "offbeat.lab.studies.calibrate": ("Calibration", "calibrate"),
    "offbeat.lab.studies.clocking": ("time",),
    "offbeat.lab.studies.comparing": ("Comparison", "compare"),
    "offbeat.lab.studies.dry_run": ("DryRun",),
    "offbeat.lab.studies.more_workers": ("Scaling",),
    "offbeat.lab.studies.sweep": ("Sweep",),
    "offbeat.lab.studies.sweeping": ("sweep",),
    "offbeat.lab.studies.timing": ("simulate",),
    "offbeat.lab.studies.timings": ("Timings",),
    "offbeat.lab.validation.validate": ("Validation", "validate"),
    "offbeat.optim.delayed": ("Delayed",),
    "offbeat.report.pages.build": ("report",),
    "offbeat.report.read": ("load",),
    "offbeat.solvers.options": (
        "additive",
        "choice",
        "flag",
        "number",
        "plain_sgd",
        "whole",
    ),
    "offbeat.solvers.parameter_server": (
        "Arrival",
        "Held",
        "ParameterServer",
        "Server",
        "Worker",
    ),
    "offbeat.solvers.replica": ("StepsOnWorkers",),
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_WHERE)
__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'offbeat' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return [*_WHERE, "__version__"]
