"""`offbeat.train`: the Python front door. It says in Python what `offbeat run` says in a shell, and runs the same."""

import sys
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from torch import nn

from offbeat import solvers
from offbeat.core.errors import ConfigError
from offbeat.core.solver import Solver
from offbeat.core.task import Task
from offbeat.data.samples import Collate
from offbeat.lab.arguments import ClusterLike, SolverLike, TrainWords, Words, check_words, must_be, said
from offbeat.lab.config import make
from offbeat.lab.runs.address import default_folder
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.runs.result import Run
from offbeat.lab.runs.tasks import build_task
from offbeat.lab.studies.dry_run import DryRun
from offbeat.lab.watch.hooks import check_hooks
from offbeat.lab.watch.noticing import Noticing
from offbeat.optim.steppers import Factory, optimizer_factory
from offbeat.progress import run_progress, watched
from offbeat.tasks.module import Loss, ModuleTask


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


def solver(
    name: str | type[Solver],
    *,
    optimizer: str | Factory = "sgd",
    lr: float | None = None,
    label: str | None = None,
    **options: Any,
) -> Solver:
    """A solver as an object: `offbeat.solver("dc-asgd", lr=0.1, lam=2.0)`.

    Args:
        name: a name of `offbeat list solvers`, `package.module:Class`, or a class of your own.
        optimizer: the name of a torch optimizer, or a factory of one (a function of its parameters).
        lr: the learning rate, 0.05 unless given; not with a factory, which has its own.
        label: what runs and reports call it; its name unless given.
        options: those of the solver, and those of the optimizer that is named (momentum, betas, ...).
    """
    if isinstance(name, Solver):
        raise ConfigError(f"this is a solver already: hand it to offbeat.train as it is, got {name!r}")
    own_class = solvers.whole_class(name, name.__name__) if isinstance(name, type) else None
    called = must_be(name if own_class is None else own_class.__name__, str, "a solver's name must be text or a class")
    kind = own_class or solvers.solver_class(called)
    own = {*solvers.hyper_parameters(kind), *solvers.server_options(kind)}
    mine = {k: v for k, v in options.items() if k in own}
    rest = {k: v for k, v in options.items() if k not in own}
    if callable(optimizer):
        if rest or lr is not None:
            given = ["lr"] * (lr is not None) + sorted(rest)
            raise ConfigError(f"a factory already holds its options; give {', '.join(given)} to the factory")
        factory = optimizer
    else:
        factory = optimizer_factory(optimizer, lr=0.05 if lr is None else lr, **rest)
    made: Solver = solvers.build(called, factory, mine, own_class)
    made.label = label or called  # type: ignore[attr-defined]
    return made


@overload
def train(
    task: str | Path | Task,
    solver: SolverLike | None = None,
    cluster: ClusterLike = None,
    *,
    dry_run: Literal[False] = False,
    **words: Unpack[TrainWords],
) -> Run: ...
@overload
def train(
    task: str | Path | Task,
    solver: SolverLike | None = None,
    cluster: ClusterLike = None,
    *,
    dry_run: Literal[True],
    **words: Unpack[TrainWords],
) -> DryRun: ...
def train(
    task: str | Path | Task,
    solver: SolverLike | None = None,
    cluster: ClusterLike = None,
    *,
    seed: int | None = None,
    out: str | Path | Literal[False] | None = None,
    callbacks: Iterable[Any] = (),
    pool: int | None = None,
    again: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    **words: Unpack[Words],
) -> Run | DryRun:
    """Trains and returns the run; `offbeat run` with the same words is the same run: its folder and every bit.

    Ctrl-C saves the run and raises KeyboardInterrupt; the same call goes on with it.
    What is not given is what suits the task (`offbeat list tasks`), and otherwise as it says here.

    Args:
        task: a name (`"digits"`), `"package.module:factory"`, an object (`offbeat.task(...)`), or a file with a whole
            configuration (`"my.toml"`), which the words below then change.
        solver: the rule: a name (`"asgd"`), `"package.module:Class"`, a class, or an object
            (`offbeat.solver("asgd", lr=0.1)`, which has its own optimizer); `"asgd"` unless given.
        cluster: so many equal workers, a `Cluster`, or a file with a `[cluster]` section; 4 workers, or 1 for a rule
            that has one.
        seed: of everything random.
        out: the run's folder, `runs/<hash>` unless given; False keeps the run in memory.
        callbacks: objects with `on_apply(row)`, `on_evaluation(metrics)` or both.
        pool: threads that compute gradients, all cores unless given; 0 computes them one by one. The bits are the same.
        again: run anew what is finished; otherwise it is returned at once. An unfinished run goes on where it stopped.
        dry_run: run and write nothing; return what would run, with memory, disk and time.
        progress: whether progress is shown; in a notebook and on a terminal unless given.
        settings: any further keys, as with `--set`: `{"solver.lam": 2.0, "optimizer.momentum": 0.9}`; `offbeat config`
            lists them.
        engine: what runs it: `"sim"` (virtual time), `"local"` (real processes), `"ray"` (those of a
            Ray cluster), `"debug"` (threads of this process, for a debugger), `"threads"` (word2vec, in place).
        budget: how long: `"20epochs"`, `"5000samples"`, `"1000updates"`, `"30s"`; until when: `"accuracy=0.98"`; or a
            `Budget`, which can have both.
        until: a target that ends it, besides the budget: `"accuracy=0.98"`.
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
        global_batch: samples of a mini-batch shared by the workers, instead.
        workers: so many, of the cluster that is given or of equal ones.
        compute: the time of a mini-batch, of all or by worker: `["10ms", "40ms@0"]`.
        delay: extra delay of a mini-batch, likewise: `"30ms@0"`.
        latency: of one message, each way.
        bandwidth: of a worker's link: `"10Gbps"`.
        data: what the task is trained on, where it can be chosen: `"text8"`, a file.
        evaluate_every: `"1epochs"`, `"500updates"`; not in seconds.
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
        address: a running Ray cluster, `"host:port"` or `"auto"`, for `engine="ray"`.
        local: options of the local engine: `{"on_loss": "leave out", "patience": "60s", "restarts": 20}`.
    """
    check_words("train", words, [a for a in signature(train).parameters if a != "words"])
    values, objects = said(task, cluster, words, settings, solver, seed)
    hooks = list(must_be(callbacks, Iterable, "callbacks must be a list of objects"))
    check_hooks(hooks)
    plan = build(make(values, objects), objects)
    folder = None
    if out is None:
        folder = default_folder(plan.key, plan.config)
    elif out is not False:
        folder = Path(must_be(out, str | Path, "out must be a folder, or False"))
    if dry_run:
        from offbeat.lab.studies.estimate import estimate

        return estimate(plan, folder, pool)
    quiet = not (watched() if progress is None else progress)
    with run_progress(f"{plan.task.name} / {plan.solver_name}", quiet=quiet) as shown:
        noticing = Noticing(lambda line: print(line, file=sys.stderr), shown)
        run = execute(plan, folder, pool=pool, again=again, callbacks=hooks, pass_on=True, progress=noticing)
    noticing.look(plan.task)
    if run.shown:
        print(run.said_shown("again=True"), file=sys.stderr)
    return run
