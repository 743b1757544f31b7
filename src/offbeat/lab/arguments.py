"""The words that Python takes, everywhere the same, and the configuration that they come to."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from offbeat.core.budget import Amount, Budget
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.solver import Solver
from offbeat.core.task import Task
from offbeat.engines.cluster import Cluster
from offbeat.lab.clusters import find_cluster
from offbeat.lab.config import Objects, merge, say
from offbeat.lab.runs.tasks import as_task
from offbeat.solvers import whole_class

SolverLike = str | Solver | type[Solver]
ClusterLike = int | str | Path | Cluster | None

_SOLVER = "solver must be a name, a class or an object (offbeat.solver(...))"
_OPTIMIZER = 'optimizer must be a name; a factory goes to the solver, offbeat.solver("asgd", optimizer=...)'


class Words(TypedDict, total=False):
    """The settings of a run, by keyword; `help(offbeat.train)` says what each means."""

    engine: str | None
    budget: str | Budget | None
    until: str | None
    optimizer: str | None
    lr: float | None
    schedule: Literal["constant", "polynomial", "multistep", "exponential", "cosine"] | None
    warmup: str | Amount | None
    clip: float | None
    scale_lr: Literal["none", "linear", "inverse"] | None
    scale_batch: Literal["none", "inverse"] | None
    scale_workers: int | None
    batch: int | None
    global_batch: int | None
    workers: int | None
    compute: str | Iterable[str] | None
    delay: str | Iterable[str] | None
    latency: str | None
    bandwidth: str | None
    data: str | None
    evaluate_every: str | Amount | None
    partition: str | None
    sampling: Literal["shuffled", "replacement"] | None
    validation: float | None
    folds: int | None
    fold: int | None
    patience: int | None
    keep_best: bool | None
    gap: bool | None
    saves_per_epoch: float | None
    diagnose_every: int | None
    on_divergence: Literal["stop", "continue"] | None
    local: Mapping[str, Any] | None
    address: str | None


class TrainWords(Words, total=False):
    """All words of `train` that go by keyword."""

    seed: int | None
    out: str | Path | Literal[False] | None
    callbacks: Iterable[Any]
    pool: int | None
    again: bool
    progress: bool | None
    settings: Mapping[str, Any] | None


class StudyWords(Words, total=False):
    """The words that `compare` and `sweep` share; those after the first two say how runs are made, and not which."""

    out: str | Path | None
    settings: Mapping[str, Any] | None
    processes: int | None
    on: str
    cpus: float | None
    again: bool
    progress: bool | None


def said(
    task: str | Path | Task,
    cluster: ClusterLike,
    words: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    solver: SolverLike | None = None,
    seed: int | None = None,
) -> tuple[dict[str, Any], Objects]:
    """The values of a configuration, and what was given as objects in place of names."""
    values: dict[str, Any] = {}
    if isinstance(task, str | Path):
        from_file_or_name(values, task)
    if isinstance(cluster, int) and words.get("workers") is not None:
        raise ConfigError(f"workers are given twice: cluster={cluster!r} and workers={words['workers']!r}")
    if isinstance(cluster, Cluster):
        values["cluster"] = cluster.to_dict()
    elif isinstance(cluster, str | Path):
        values["cluster"] = find_cluster(cluster)
    else:
        say(values, {"workers": cluster})
    say(values, {"solver": solver if isinstance(solver, str) else None, "seed": seed, **plain(words)})
    merge(values, must_be(settings or {}, Mapping, "settings must be keys and values"))
    return values, objects(task, solver)


def from_file_or_name(values: dict[str, Any], task: str | Path) -> None:
    """A task's name, or a file with a whole configuration."""
    from offbeat.lab.config import read_toml

    if str(task).endswith(".toml") or isinstance(task, Path) or ("/" in task and Path(task).exists()):
        merge(values, read_toml(Path(task)))
    else:
        merge(values, {"task": task})


def objects(task: str | Path | Task | None, solver: SolverLike | None) -> Objects:
    """What was given as an object, and not by name."""
    made = None if task is None or isinstance(task, str | Path) else as_task(task, "task")
    if solver is None or isinstance(solver, str):
        return Objects(made)
    if isinstance(solver, type):
        return Objects(made, rule=whole_class(solver, solver.__name__))
    return Objects(made, must_be(solver, Solver, _SOLVER))


def plain(words: Mapping[str, Any]) -> dict[str, Any]:
    """The words as a configuration takes them: text in place of values."""
    out = {k: v for k, v in words.items() if v is not None}
    must_be(out.get("optimizer"), str | None, _OPTIMIZER)
    if "budget" in out:
        out["budget"] = Budget.parse(out["budget"])
    if "evaluate_every" in out:
        out["evaluate_every"] = str(Amount.parse(out["evaluate_every"], "evaluate_every"))
    if isinstance(out.get("warmup"), Amount):
        out["warmup"] = str(out["warmup"])
    for name in ("compute", "delay"):
        if isinstance(out.get(name), Iterable) and not isinstance(out[name], str | Mapping):
            out[name] = list(out[name])  # what is no list is refused where settings are
    return out


def check_words(function: str, words: Mapping[str, Any], others: Iterable[str]) -> None:
    """A word that nobody knows lists those that are known."""
    known = [*others, *Words.__annotations__]
    for name in words:
        if name not in known:
            raise unknown(f"argument of {function}", name, known)


def must_be(value: Any, kind: Any, words: str) -> Any:
    if not isinstance(value, kind):
        raise ConfigError(f"{words}, got {value!r}")
    return value
