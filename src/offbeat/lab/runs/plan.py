"""From a configuration to the objects that run: the one place where task, solver and cluster are put together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from offbeat.core.budget import Amount, Budget
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed, Indices
from offbeat.core.solver import Solver, World
from offbeat.core.task import Task
from offbeat.data import partitions
from offbeat.data.balance import statistics
from offbeat.engines.cluster import Cluster
from offbeat.engines.running.fit import world_of
from offbeat.lab.config import NONE, Config, Objects
from offbeat.lab.config.ignored import refuse_ignored_with
from offbeat.lab.config.sections import LocalConfig, RayConfig
from offbeat.lab.engines import entry
from offbeat.lab.runs.address import address, code_of
from offbeat.lab.runs.rules import batch_growth, solver_of
from offbeat.lab.runs.tasks import hold_out, task_of


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
    local: LocalConfig = field(default_factory=LocalConfig)
    """Options of real processes."""
    ray: RayConfig = field(default_factory=RayConfig)
    """Options of the ray engine."""
    maker: tuple[str, tuple[Any, ...]] | None = None
    """The function and arguments with which other processes make the task anew; None: it is sent to them."""
    solver_name: str = "custom"
    config: Mapping[str, Any] = field(default_factory=dict)
    """What run.json holds: enough to build the plan again, unless it was made of Python objects."""
    key: str | None = None
    """The content address; None for Python objects without a fingerprint."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """The versions of what the user's own code imports."""

    def __post_init__(self) -> None:
        amount = self.budget.amount
        if entry(self.engine).real or amount is None or amount.unit != "seconds" or self.cluster.schedule is not None:
            return
        network = 2 * self.cluster.transfer_time(self.task.nbytes) + self.cluster.service.mean
        network += 2 * self.task.nbytes / self.cluster.server.total
        for i in range(self.cluster.workers):
            takes = self.cluster.mean_compute(i, self.batch) + sum(d.mean for d in self.cluster.delays_of(i)) + network
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

    def world(self) -> World:
        """What its rule may know of its surroundings."""
        return world_of(self.cluster, self.task, self.feed(), self.seed, self.local.start)

    @cached_property
    def shards(self) -> list[Indices] | None:
        """Each worker's own samples; None where everybody draws from everything."""
        divide = partitions.parse(self.partition).divide
        if divide is None or self.task.size is None:
            return None
        least = self.batch if self.sampling == "shuffled" else 1
        labels = getattr(self.task, "labels", None)
        return divide(partitions.Stock(self.task.size, self.cluster.workers, self.seed, least, labels))

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

    @property
    def samples_per_worker(self) -> int | None:
        """What each worker has to do, where the budget is per worker."""
        if self.budget.per == "global":
            return None
        samples = self.samples_budget
        assert samples is not None
        return max(1, round(samples / self.cluster.workers))


def build(config: Config, objects: Objects = NONE) -> Plan:
    """The plan of a configuration, with `objects` in place of what it would make by name."""
    task = task_of(config) if objects.task is None else hold_out(objects.task, config)
    refuse_ignored_with(task, config)
    solver = solver_of(config, task, objects.rule) if objects.solver is None else objects.solver
    budget_config = config.budget
    if not budget_config.given:  # a target alone still ends
        limit = {"updates": 100_000} if task.size is None else {"epochs": 100.0}
        budget_config = budget_config.model_copy(update=limit)
        config = config.model_copy(update={"budget": budget_config})
    return Plan(
        task=task,
        solver=solver,
        cluster=config.cluster_value(),
        budget=budget_config.budget(),
        seed=config.seed,
        batch=config.batch,
        partition=config.data.partition,
        sampling=config.data.sampling,
        first_batch=config.data.first_batch,
        batch_growth=batch_growth(config, task),
        evaluate_every=Amount.parse(config.evaluate.every),
        patience=config.evaluate.patience,
        keep_best=config.evaluate.keep_best,
        gap=config.record.gap,
        saves_per_epoch=config.record.saves_per_epoch,
        diagnose_every=config.record.diagnose_every,
        on_divergence=config.on_divergence,
        engine=config.engine,
        local=config.local,
        ray=config.ray,
        maker=("offbeat.lab.runs.tasks:remake", (config.plain(),)) if objects.task is None else None,
        solver_name=config.solver.name,
        config=objects.recorded(config) if objects else config.plain(),
        key=address(config, objects, task),
        packages=code_of(config, objects).versions,
    )
