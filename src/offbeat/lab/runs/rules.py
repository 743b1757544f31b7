"""From a configuration to the rule that runs: solver, optimizer, schedule, and the growth of the batch."""

from fnmatch import fnmatchcase

from offbeat import solvers
from offbeat.core.budget import Amount
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.solver import Solver
from offbeat.core.task import Task
from offbeat.core.units import shown
from offbeat.lab.config import Config
from offbeat.optim.schedules import Schedule
from offbeat.optim.steppers import Factory, TwoStage, optimizer_factory


def solver_of(config: Config, task: Task, kind: type[Solver] | None = None) -> Solver:
    """The solver of a configuration (`kind`: its class, if it has no name), with optimizer, schedule, multipliers."""
    made: Solver = solvers.build(config.solver.name, _optimizer(config, task), config.solver.options, kind)
    s = config.schedule
    if s.kind != "constant" or s.warmup is not None:
        over = s.over or next((f"{getattr(config.budget, u)}{u}" for u in config.budget.given), None)
        amount = None if over is None else Amount.parse(over)
        made.schedule = Schedule(
            kind=s.kind,
            warmup=0.0 if s.warmup is None else _in_samples(s.warmup, task, "schedule.warmup"),
            total=None if amount is None else amount.samples(task.size),
            power=s.power,
            milestones=tuple(_in_samples(m, task, "schedule.milestones") for m in s.milestones),
            gamma=s.gamma,
            unit=float(task.size or 1),
            floor=s.floor,
        )
    if config.optimizer.multipliers:
        names = [segment.name for segment in task.layout.segments]
        for pattern in config.optimizer.multipliers:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise unknown("parameter in optimizer.multipliers", pattern, names)
        made.multipliers = config.optimizer.multipliers
    return made


def _optimizer(config: Config, task: Task) -> Factory:
    made = optimizer_factory(config.optimizer.name, lr=config.lr, **config.optimizer.options)
    if config.optimizer.first is None:
        return made
    first = dict(config.optimizer.first)
    if "name" not in first or "for" not in first:
        raise ConfigError(f"optimizer.first needs a name and for = '5epochs', got {shown(config.optimizer.first)}")
    samples = _in_samples(str(first.pop("for")), task, "optimizer.first.for")
    return TwoStage(optimizer_factory(**{"lr": config.lr, **first}), made, samples)


def batch_growth(config: Config, task: Task) -> float:
    """Samples over which the batch grows to its size."""
    if config.data.batch_warmup is None:
        return 0.0
    if task.size is None:
        raise ConfigError(f"data.batch_warmup needs a dataset, and task {config.task.name!r} has none")
    return _in_samples(config.data.batch_warmup, task, "data.batch_warmup")


def _in_samples(text: str, task: Task, what: str) -> float:
    samples = Amount.parse(text, what).samples(task.size)
    if samples is None:
        raise ConfigError(f"{what} must be in epochs or samples, got {text!r}")
    return samples
