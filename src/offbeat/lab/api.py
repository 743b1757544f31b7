"""`offbeat.train`: the Python front door. It says in Python what `offbeat run` says in a shell, and runs the same."""

import sys
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Literal

from torch import nn

from offbeat import solvers
from offbeat.core.budget import Amount, Budget
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.solver import Solver
from offbeat.core.task import Task
from offbeat.data.samples import Collate
from offbeat.engines.cluster import Cluster
from offbeat.lab.config import Objects, make, merge, say
from offbeat.lab.runs.address import default_folder
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.result import Run
from offbeat.lab.runs.tasks import as_task, build_task
from offbeat.lab.watch.hooks import check_hooks
from offbeat.optim.steppers import Factory, optimizer_factory
from offbeat.tasks.module import Loss, ModuleTask

_SOLVER = "solver must be a name or an object (offbeat.solver(...))"

_OPTIMIZER = 'optimizer must be a name; a factory goes to the solver, offbeat.solver("asgd", optimizer=...)'


def task(
    model: nn.Module | Callable[[], nn.Module],
    loss: Loss,
    train: Any,
    test: Any = None,
    *,
    name: str = "custom",
    fingerprint: str | None = None,
    collate: Collate | None = None,
) -> ModuleTask:
    """A task of your own.

    Args:
        model: any module, or a function that makes one.
        loss: a function of (output, target).
        train: the training set: tensors or arrays, the last of which is the target (`(X, y)`, a TensorDataset), or a
            map-style dataset of (input, target) or of dicts, which forward takes by name.
        test: what it is evaluated on, likewise; None: nothing is held out.
        name: what the run and its report call it.
        fingerprint: names what the data are; with one, a repeated run finds its folder again.
        collate: puts a list of samples together into (inputs, target) or a dict, as a DataLoader takes it.
    """
    return ModuleTask(model, loss, train, test, name=name, fingerprint=fingerprint, collate=collate)


def named_task(name: str, **options: Any) -> Task:
    """A task by name with options of its own: `named_task("cifar10", model="resnet18")`."""
    return build_task(name, options, 32)


def solver(name: str, *, optimizer: str | Factory = "sgd", lr: float | None = None, **options: Any) -> Solver:
    """A solver by name, as an object: `offbeat.solver("dc-asgd", lr=0.1, lam=2.0)`.

    Args:
        name: a name of `offbeat list solvers`, or `package.module:Class`.
        optimizer: the name of a torch optimizer, or a factory of one (a function of its parameters).
        lr: the learning rate, 0.05 unless given; not with a factory, which has its own.
        options: those of the solver, and those of the optimizer that is named (momentum, betas, ...).
    """
    if not isinstance(name, str):
        raise ConfigError(f"a solver's name must be text, got {name!r}: hand an object to offbeat.train as it is")
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
    cluster: int | Cluster | None = None,
    *,
    engine: str = "sim",
    budget: str | Budget | None = None,
    seed: int = 0,
    out: str | Path | Literal[False] | None = None,
    callbacks: Iterable[Any] = (),
    optimizer: str | None = None,
    lr: float | None = None,
    schedule: Literal["constant", "polynomial", "multistep", "exponential", "cosine"] | None = None,
    warmup: str | Amount | None = None,
    clip: float | None = None,
    scale_lr: Literal["none", "linear", "inverse"] | None = None,
    scale_batch: Literal["none", "inverse"] | None = None,
    scale_workers: int | None = None,
    batch: int | None = None,
    evaluate_every: str | Amount | None = None,
    pool: int | None = None,
    again: bool = False,
    settings: Mapping[str, Any] | None = None,
    partition: str | None = None,
    sampling: Literal["shuffled", "replacement"] | None = None,
    validation: float | None = None,
    folds: int | None = None,
    fold: int | None = None,
    patience: int | None = None,
    keep_best: bool | None = None,
    gap: bool | None = None,
    saves_per_epoch: float | None = None,
    diagnose_every: int | None = None,
    on_divergence: Literal["stop", "continue"] | None = None,
    local: Mapping[str, Any] | None = None,
    **others: Any,
) -> Run:
    """Trains and returns the run; `offbeat run` with the same words is the same run: its folder and every bit.

    Ctrl-C saves the run and raises KeyboardInterrupt; the same call goes on with it.
    What is not given is what suits the task (`offbeat list tasks`), and otherwise as it says here.

    Args:
        task: a name (`"digits"`), `"package.module:factory"`, or an object (`offbeat.task(...)`).
        solver: the rule: a name (`"asgd"`), `"package.module:Class"`, or an object (`offbeat.solver("asgd", lr=0.1)`,
            which has its own optimizer).
        cluster: so many equal workers, or a `Cluster`; 4 workers, or 1 for a rule that has one.
        engine: what runs it: `"sim"` (virtual time), `"local"` (real processes), `"debug"` (threads of
            this process, for a debugger), `"threads"` (word2vec, in place).
        budget: how long: `"20epochs"`, `"5000samples"`, `"1000updates"`, `"30s"`; until when: `"accuracy=0.98"`; or a
            `Budget`, which can have both.
        seed: of everything random.
        out: the run's folder, `runs/<hash>` unless given; False keeps the run in memory.
        callbacks: objects with `on_apply(row)`, `on_evaluation(metrics)` or both.
        optimizer: the name of a torch optimizer (`"adam"`, `"sgd"`), `"lars"` or `"lamb"`; its further options are
            settings (`{"optimizer.momentum": 0.9}`).
        lr: the learning rate.
        schedule: how it changes over the run, by samples processed: `"cosine"`, `"polynomial"`, `"multistep"`, ...
        warmup: over what it grows to its value at first: `"2epochs"`, `"1000samples"`.
        clip: the largest norm of a gradient, for rules with a parameter server.
        scale_lr: `"linear"` multiplies the learning rate by workers / `scale_workers` (Goyal's rule for synchronous
            SGD), `"inverse"` divides it by that (Jain's for asynchronous SGD).
        scale_batch: `"inverse"` divides the batch likewise.
        scale_workers: the number of workers for which learning rate and batch are meant, 1 unless given.
        batch: samples of one worker's mini-batch.
        evaluate_every: `"1epochs"`, `"500updates"`; not in seconds.
        pool: threads that compute gradients, all cores unless given; 0 computes them one by one. The bits are the same.
        again: run anew what is finished; otherwise it is returned at once. An unfinished run goes on where it stopped.
        settings: any further keys, as with `--set`: `{"solver.lam": 2.0, "optimizer.momentum": 0.9}`; `offbeat config`
            lists them.
        partition: who has which samples: `"shared"`, `"split"`, `"dirichlet(0.5)"`, ... (docs/tasks.md).
        sampling: `"shuffled"` (every sample once an epoch) or `"replacement"`.
        validation: share of the training set to evaluate on instead of the test set.
        folds: number of folds of cross-validation, and
        fold: the one that is held out, from 0.
        patience: stop after so many evaluations without a better one.
        keep_best: whether the best parameters seen are kept, True unless given.
        gap: whether the distance between stale and fresh parameters is recorded for every gradient.
        saves_per_epoch: snapshots of the parameters along the way, for landscapes.
        diagnose_every: compare every so many gradients with the fresh one of the same batch.
        on_divergence: `"stop"` or `"continue"`.
        local: options of the local engine: `{"on_loss": "leave out", "patience": "60s", "restarts": 20}`.
    """
    for name in others:
        raise unknown("argument of train", name, [a for a in signature(train).parameters if a != "others"])
    objects = Objects(
        None if isinstance(task, str) else as_task(task, "task"),
        None if isinstance(solver, str) else _must_be(solver, Solver, _SOLVER),
    )
    values: dict[str, Any] = {}
    if isinstance(task, str):
        merge(values, {"task": task})
    if isinstance(cluster, Cluster):
        values["cluster"] = cluster.to_dict()
    words = {
        "solver": solver if isinstance(solver, str) else None,
        "workers": None if isinstance(cluster, Cluster) else cluster,
        "engine": engine,
        "budget": None if budget is None else Budget.parse(budget),
        "seed": seed,
        "optimizer": _must_be(optimizer, str | None, _OPTIMIZER),
        "lr": lr,
        "schedule": schedule,
        "warmup": str(warmup) if isinstance(warmup, Amount) else warmup,
        "clip": clip,
        "scale_lr": scale_lr,
        "scale_batch": scale_batch,
        "scale_workers": scale_workers,
        "batch": batch,
        "evaluate_every": None if evaluate_every is None else str(Amount.parse(evaluate_every, "evaluate_every")),
        "partition": partition,
        "sampling": sampling,
        "validation": validation,
        "folds": folds,
        "fold": fold,
        "patience": patience,
        "keep_best": keep_best,
        "gap": gap,
        "saves_per_epoch": saves_per_epoch,
        "diagnose_every": diagnose_every,
        "on_divergence": on_divergence,
        "local": local,
    }
    say(values, words)
    merge(values, _must_be(settings or {}, Mapping, "settings must be keys and values"))
    hooks = list(_must_be(callbacks, Iterable, "callbacks must be a list of objects"))
    check_hooks(hooks)
    plan = build(make(values, objects), objects)
    folder = None
    if out is None:
        folder = default_folder(plan.key, plan.config)
    elif out is not False:
        folder = Path(_must_be(out, str | Path, "out must be a folder, or False"))
    run = execute(plan, folder, pool=pool, again=again, callbacks=hooks, pass_on=True)
    if run.shown:
        print(run.said_shown("again=True"), file=sys.stderr)
    return run


def _must_be(value: Any, kind: Any, words: str) -> Any:
    if not isinstance(value, kind):
        raise ConfigError(f"{words}, got {value!r}")
    return value
