"""From a configuration to the objects that run: the one place where task, solver and cluster are put together."""

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from offbeat import solvers
from offbeat.core.budget import Amount, Budget
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.feed import Feed, Indices
from offbeat.core.solver import Solver
from offbeat.core.task import Task
from offbeat.engines.cluster import Cluster
from offbeat.lab.config import Config
from offbeat.solvers.optimizers import Factory, TwoStage, optimizer_factory
from offbeat.solvers.schedules import Schedule
from offbeat.tasks import TASKS, holdout, partitions
from offbeat.tasks.balance import statistics
from offbeat.tasks.module import ModuleTask


@dataclass(frozen=True)
class Plan:
    """A run ready to start."""

    task: Task
    solver: Solver
    cluster: Cluster
    budget: Budget
    seed: int = 0
    batch: int = 32
    partition: str = "shared"
    sampling: Literal["shuffled", "replacement"] = "shuffled"
    first_batch: int | None = None
    batch_growth: float = 0.0
    """Samples over which the batch grows from `first_batch` to `batch`."""
    evaluate_every: Amount = field(default_factory=lambda: Amount(1, "epochs"))
    patience: int | None = None
    keep_best: bool = True
    gap: bool = True
    saves_per_epoch: float = 0.0
    diagnose_every: int | None = None
    on_divergence: Literal["stop", "continue"] = "stop"
    engine: str = "sim"
    local: Mapping[str, Any] = field(default_factory=dict)
    """Options of the local engine."""
    recipe: tuple[str, tuple[Any, ...]] | None = None
    """How other processes make the task anew; None: it is sent to them."""
    solver_name: str = "custom"
    config: Mapping[str, Any] = field(default_factory=dict)
    """What run.json holds: enough to build the plan again, unless it was made of Python objects."""
    key: str | None = None
    """The content address; None for Python objects without a fingerprint."""

    def __post_init__(self) -> None:
        amount = self.budget.amount
        if self.engine != "sim" or amount is None or amount.unit != "seconds" or self.cluster.schedule is not None:
            return
        network = 2 * self.cluster.transfer_time(self.task.nbytes) + self.cluster.service.mean
        for i in range(self.cluster.workers):
            takes = self.cluster.compute_of(i).mean + sum(d.mean for d in self.cluster.delays_of(i)) + network
            if takes < 1e-9 * amount.count:
                raise ConfigError(
                    f"a budget of {amount} never ends if a batch of worker {i} takes {takes:g} s: "
                    "give cluster.compute a time, or the budget in updates or samples"
                )

    def feed(self) -> Feed:
        return Feed(
            self.task.size,
            batch=self.batch,
            workers=self.cluster.workers,
            seed=self.seed,
            shards=self.shards,
            interleaved=partitions.parse(self.partition).name == "interleaved",
            sampling=self.sampling,
            first_batch=self.first_batch,
            growth=self.batch_growth,
        )

    @cached_property
    def shards(self) -> list[Indices] | None:
        """Each worker's own samples; None where everybody draws from everything."""
        divide = partitions.parse(self.partition).divide
        if divide is None or self.task.size is None:
            return None
        least = self.batch if self.sampling == "shuffled" else 1
        labels = getattr(self.task, "labels", None)
        return divide(partitions.Pool(self.task.size, self.cluster.workers, self.seed, least, labels))

    def balance(self) -> dict[str, Any] | None:
        """What `partition.json` says: sizes, label histograms, skew; None where there is no dataset."""
        if self.task.size is None:
            return None
        labels = getattr(self.task, "labels", None)
        found = statistics(self.shards, self.task.size, self.cluster.workers, labels)
        names = getattr(self.task, "classes", None)
        if names and "labels" in found:
            found["names"] = [names[label] if 0 <= label < len(names) else str(label) for label in found["labels"]]
        return {"partition": self.partition, "sampling": self.sampling, **found}

    @property
    def samples_budget(self) -> float | None:
        """The amount in samples over all workers; None for budgets in updates or seconds."""
        return None if self.budget.amount is None else self.budget.amount.samples(self.task.size)


def task_of(config: Config) -> Task:
    """The task of a configuration, with what is held out of its training set."""
    task = build_task(config.task.name, config.task.options, config.batch)
    return hold_out(task, config.seed, config.data.validation, config.data.folds, config.data.fold)


def remake(values: Mapping[str, Any]) -> Task:
    """The same from plain values, in another process."""
    return task_of(Config.model_validate(values))


def build(config: Config) -> Plan:
    """The plan of a configuration."""
    task = task_of(config)
    optimizer = _optimizer(config, task)
    budget_config = config.budget
    if not budget_config.given:  # a target alone still ends
        limit = {"updates": 100_000} if task.size is None else {"epochs": 100.0}
        budget_config = budget_config.model_copy(update=limit)
        config = config.model_copy(update={"budget": budget_config})
    return Plan(
        task=task,
        solver=_solver(config, optimizer, task),
        cluster=config.cluster_value(),
        budget=budget_config.budget(),
        seed=config.seed,
        batch=config.batch,
        partition=config.data.partition,
        sampling=config.data.sampling,
        first_batch=config.data.first_batch,
        batch_growth=_batch_growth(config, task),
        evaluate_every=Amount.parse(config.evaluate.every),
        patience=config.evaluate.patience,
        keep_best=config.evaluate.keep_best,
        gap=config.record.gap,
        saves_per_epoch=config.record.saves_per_epoch,
        diagnose_every=config.record.diagnose_every,
        on_divergence=config.on_divergence,
        engine=config.engine,
        local=config.local.model_dump(),
        recipe=("offbeat.lab.plan:remake", (config.plain(),)),
        solver_name=config.solver.name,
        config=config.plain(),
        key=address(config),
    )


def hold_out(
    task: Task, seed: int, validation: float | None = None, folds: int | None = None, fold: int | None = None
) -> Task:
    """The task with its validation set, if one is asked for: then the test set is looked at once, at the end."""
    if validation is None and folds is None:
        return task
    if task.size is None or not hasattr(task, "hold_out"):
        raise ConfigError(f"task {task.name!r} cannot hold out a validation set: only models with a dataset can")
    labels = getattr(task, "labels", None)
    if folds is not None:
        out = holdout.folds(task.size, folds, seed, labels)[fold or 0]
    else:
        assert validation is not None
        out = holdout.share(task.size, validation, seed, labels)
    made: Task = task.hold_out(out)
    return made


def _optimizer(config: Config, task: Task) -> Factory:
    made = optimizer_factory(config.optimizer.name, lr=config.lr, **config.optimizer.options)
    if config.optimizer.first is None:
        return made
    first = dict(config.optimizer.first)
    if "name" not in first or "for" not in first:
        raise ConfigError(f"optimizer.first needs a name and for = '5epochs', got {config.optimizer.first}")
    samples = _in_samples(str(first.pop("for")), task, "optimizer.first.for")
    return TwoStage(optimizer_factory(**{"lr": config.lr, **first}), made, samples)


def check_rule(config: Config) -> None:
    """Wrong options of solver or optimizer, found without the task: for many runs, before the first of them."""
    optimizer = optimizer_factory(config.optimizer.name, lr=config.lr, **config.optimizer.options)
    solvers.build(config.solver.name, optimizer, config.solver.options)


def _solver(config: Config, optimizer: Factory, task: Task) -> Solver:
    made: Solver = solvers.build(config.solver.name, optimizer, config.solver.options)
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
        made.multipliers = config.optimizer.multipliers
    return made


def _batch_growth(config: Config, task: Task) -> float:
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


def address(config: Config) -> str:
    """The configuration's hash and, where it names Python code of the user's, that of the code."""
    sources = [source_digest(n) for n in (config.task.name, config.solver.name) if ":" in n]
    if not sources:
        return config.hash
    return hashlib.sha256(json.dumps([config.hash, *sources]).encode()).hexdigest()[:12]


def source_digest(path: str) -> str:
    """SHA-256 of the file behind `package.module:name`, so that changed code is a different run."""
    file = inspect.getsourcefile(sys.modules[_import(path).__module__])
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


def _import(path: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return solvers.load_object(path, "object")


def build_task(name: str, options: Mapping[str, Any], batch: int) -> Task:
    """A task by name, or made by `package.module:factory`, which returns a Task or (model, loss, train[, test])."""
    if name in TASKS:
        factory = solvers.load_object(TASKS[name].path, "task")
    elif ":" in name:
        factory = _import(name)
    else:
        raise unknown("task", name, TASKS)
    known = inspect.signature(factory).parameters
    given = dict(options)
    if "data" in given and "data" not in known:
        raise ConfigError(f"task {name!r} brings its own data, got data={given['data']!r}: word2vec takes another")
    for key in given:
        if key not in known and not any(p.kind is p.VAR_KEYWORD for p in known.values()):
            settable = [k for k in known if k != "batch"]
            if not settable:
                raise ConfigError(f"task {name!r} has no options, got {key!r}")
            raise unknown(f"option of task {name!r}", key, settable)
    if name == "quadratic":
        given["batch"] = batch  # noise is that of a mean over the batch
    try:
        made = factory(**given)
    except TypeError as e:
        raise ConfigError(f"task {name!r} cannot be made: {e}") from None
    return as_task(made, name)


def as_task(made: Any, name: str) -> Task:
    """A task as it is, or one around (model, loss, train[, test])."""
    if isinstance(made, tuple) and len(made) in (3, 4):
        return ModuleTask(*made, name=name)
    if not isinstance(made, Task):
        raise ConfigError(f"{name!r} must give a Task or (model, loss, train[, test]), got {type(made).__name__}")
    return made
