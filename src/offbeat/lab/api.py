"""`offbeat.train`: the Python front door."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from offbeat import solvers
from offbeat.core.budget import Amount, Budget
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.solver import Solver
from offbeat.core.task import Task
from offbeat.engines.cluster import Cluster
from offbeat.lab.config import make_data, make_local
from offbeat.lab.engines import CLOCKS
from offbeat.lab.plan import Plan, as_task, build_task, hold_out
from offbeat.lab.result import Run
from offbeat.lab.run import execute
from offbeat.solvers.optimizers import Factory, optimizer_factory
from offbeat.tasks import TASKS, settings
from offbeat.tasks.module import Loss, ModuleTask


def task(
    model: nn.Module | Callable[[], nn.Module],
    loss: Loss,
    train: Any,
    test: Any = None,
    *,
    name: str = "custom",
    fingerprint: str | None = None,
) -> ModuleTask:
    """A task of your own: any module, loss(output, target), and map-style datasets or pairs of tensors.

    `fingerprint` names what it is; with one, a repeated run finds its folder again.
    """
    return ModuleTask(model, loss, train, test, name=name, fingerprint=fingerprint)


def named_task(name: str, **options: Any) -> Task:
    """A task by name with options of its own: `named_task("cifar10", model="resnet18")`."""
    return build_task(name, options, 32)


def solver(name: str, *, optimizer: str | Factory = "sgd", lr: float | None = None, **options: Any) -> Solver:
    """A solver by name; `optimizer` is the name of a torch optimizer or a factory of one.

    Options of the optimizer that is named (momentum, betas, ...) and the solver's own may be given together.
    """
    own = solvers.hyper_parameters(solvers.solver_class(name))
    mine = {k: v for k, v in options.items() if k in own}
    rest = {k: v for k, v in options.items() if k not in own}
    if callable(optimizer):
        if rest or lr is not None:
            given = ["lr"] * (lr is not None) + sorted(rest)
            raise ConfigError(f"a factory already holds its options; give {', '.join(given)} to the factory")
        factory = optimizer
    else:
        factory = optimizer_factory(optimizer, lr=0.05 if lr is None else lr, **rest)
    made: Solver = solvers.build(name, factory, mine)
    made.label = name  # type: ignore[attr-defined]
    return made


def train(
    task: str | Task,
    solver: str | Solver = "asgd",
    cluster: int | Cluster = 4,
    *,
    engine: Literal["sim", "local", "threads"] = "sim",
    budget: str | Budget = "5epochs",
    seed: int = 0,
    out: str | Path | Literal[False] | None = None,
    callbacks: Iterable[Any] = (),
    batch: int = 32,
    evaluate_every: str | Amount | None = None,
    pool: int | None = None,
    again: bool = False,
    **settings: Any,
) -> Run:
    """Trains and returns the run.

    `task` and `solver` are names or objects (`offbeat.task(...)`, `offbeat.solver("asgd", lr=0.1)`), `cluster` a number
    of equal workers or a `Cluster`. The run's folder is `out`, by default `runs/<hash>`; `out=False` keeps the run in
    memory. A finished run is returned at once unless `again=True`; an unfinished one goes on where it stopped.
    `callbacks` are objects with `on_apply(row)` or `on_evaluation(metrics)`. Further settings:
    `partition`, `sampling`, `validation`, `folds` and `fold`, `patience`, `keep_best`, `gap`, `saves_per_epoch`,
    `diagnose_every`, `on_divergence`, and `local`: options of the local engine, such as `{"on_loss": "leave out"}`.
    """
    if engine not in CLOCKS:
        raise unknown("engine", str(engine), CLOCKS)
    recorded = ("keep_best", "gap", "saves_per_epoch", "diagnose_every")
    kept_out = ("validation", "folds", "fold")
    extra = ("partition", "sampling", *kept_out, "patience", *recorded, "on_divergence", "local")
    for key in settings:
        if key not in extra:
            raise unknown("argument of train", key, extra)
    if isinstance(batch, bool) or not isinstance(batch, int) or not 1 <= batch < 2**31:
        raise ConfigError(f"batch must be a whole number from 1, got {batch!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ConfigError(f"seed must be a whole number from 0, got {seed!r}")
    if "local" in settings:
        settings["local"] = make_local(settings["local"])
    data = make_data({key: settings.pop(key) for key in kept_out if key in settings})
    made_task = build_task(task, {}, batch) if isinstance(task, str) else as_task(task, "task")
    made_task = hold_out(made_task, seed, data.validation, data.folds, data.fold)
    made_solver = _solver(solver, task)
    made_cluster = cluster if isinstance(cluster, Cluster) else Cluster.parse(workers=cluster)
    usual = "1epochs" if made_task.size is not None else "10updates"
    every = evaluate_every or _suited(task).get("evaluate.every", usual)
    plan = Plan(
        task=made_task,
        solver=made_solver,
        cluster=made_cluster,
        budget=_bounded(Budget.parse(budget), made_task),
        seed=seed,
        batch=batch,
        evaluate_every=Amount.parse(every, "evaluate_every"),
        engine=engine,
        solver_name=getattr(made_solver, "label", type(made_solver).__name__),
        **settings,
    )
    plan = replace(plan, config=_described(plan, made_task), key=_address(plan, made_task))
    return execute(plan, _folder(out, plan), pool=pool, again=again, callbacks=callbacks)


def _solver(given: str | Solver, task: str | Task) -> Solver:
    if not isinstance(given, str):
        return given
    own = {k.removeprefix("optimizer."): v for k, v in _suited(task).items() if k.startswith("optimizer.")}
    multipliers = own.pop("multipliers", None)
    made = solver(given, optimizer=own.pop("name", "sgd"), **own)
    made.multipliers = multipliers
    return made


def _suited(task: str | Task) -> Mapping[str, Any]:
    """The settings that suit a task, by dotted key."""
    found: Mapping[str, Any] = getattr(task, "defaults", {})
    return settings(task, {}) if isinstance(task, str) and task in TASKS else found


def _bounded(budget: Budget, task: Task) -> Budget:
    """A target alone still ends: after 100 epochs, or 100,000 updates where there are none."""
    if budget.amount is not None:
        return budget
    return replace(budget, amount=Amount(100_000, "updates") if task.size is None else Amount(100, "epochs"))


def _described(plan: Plan, task: Task) -> dict[str, Any]:
    """What was run, in plain values. Made of Python objects, it tells but cannot be run again from the file."""
    factory = getattr(plan.solver, "opt", None)
    optimizer = {"name": getattr(factory, "func", factory), **getattr(factory, "keywords", {})}
    optimizer["name"] = getattr(optimizer["name"], "__name__", str(optimizer["name"])).lower()
    own = solvers.hyper_parameters(type(plan.solver))
    return {
        "task": {"name": task.name, "fingerprint": getattr(task, "fingerprint", None), **_known_before(task)},
        "solver": {"name": plan.solver_name, **{k: repr(getattr(plan.solver, k, None)) for k in own}},
        "optimizer": {k: v if isinstance(v, str | int | float | bool) else repr(v) for k, v in optimizer.items()},
        "cluster": plan.cluster.to_dict(),
        "budget": {"amount": str(plan.budget.amount), "until": str(plan.budget.until), "per": plan.budget.per},
        "data": {"batch": plan.batch, "partition": plan.partition, "sampling": plan.sampling},
        "evaluate": {
            "every": str(plan.evaluate_every),
            "patience": plan.patience,
            "keep_best": plan.keep_best,
        },
        "record": {"gap": plan.gap, "saves_per_epoch": plan.saves_per_epoch},
        "on_divergence": plan.on_divergence,
        "seed": plan.seed,
        "engine": plan.engine,
        "from": "python",
    }


def _known_before(task: Task) -> dict[str, Any]:
    """Its description without what is found out on the way: a task that has run is still the same task."""
    return {k: v for k, v in task.describe().items() if k != "randomness"}


def _address(plan: Plan, task: Task) -> str | None:
    if getattr(task, "fingerprint", None) is None and task.name != "quadratic":
        return None
    text = json.dumps(_described(plan, task), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _folder(out: str | Path | Literal[False] | None, plan: Plan) -> Path | None:
    if out is False:
        return None
    if out is not None:
        return Path(out)
    if plan.key is not None:
        return Path("runs") / plan.key
    text = json.dumps(plan.config, sort_keys=True, default=str)
    stem = hashlib.sha256(text.encode()).hexdigest()[:12]
    number = 1
    while (Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return Path("runs") / f"{stem}-{number}"
