"""`offbeat.sweep`: a grid over any keys, in the words of Python."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from offbeat.core.errors import ConfigError
from offbeat.core.task import Task
from offbeat.lab.arguments import ClusterLike, SolverLike, StudyWords, Words, check_words, said
from offbeat.lab.config import keys_of
from offbeat.lab.studies.dry_run import DryRun
from offbeat.lab.studies.places import HOW, Where, take_address
from offbeat.lab.studies.sweep import Grid, Points, Sweep, plan_sweep, say_what_is_swept


@overload
def sweep(
    task: str | Path | Task,
    solver: SolverLike | None = None,
    cluster: ClusterLike = None,
    *,
    grid: Grid | None = None,
    points: Points | None = None,
    seeds: int | Sequence[int] | None = None,
    dry_run: Literal[False] = False,
    **words: Unpack[StudyWords],
) -> Sweep: ...
@overload
def sweep(
    task: str | Path | Task,
    solver: SolverLike | None = None,
    cluster: ClusterLike = None,
    *,
    grid: Grid | None = None,
    points: Points | None = None,
    seeds: int | Sequence[int] | None = None,
    dry_run: Literal[True],
    **words: Unpack[StudyWords],
) -> DryRun: ...
def sweep(
    task: str | Path | Task,
    solver: SolverLike | None = None,
    cluster: ClusterLike = None,
    *,
    grid: Grid | None = None,
    points: Points | None = None,
    seeds: int | Sequence[int] | None = None,
    out: str | Path | None = None,
    processes: int | None = None,
    on: str = "here",
    cpus: float | None = None,
    again: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    **words: Unpack[Words],
) -> Sweep | DryRun:
    """A grid over any keys, times seeds; `offbeat sweep` with the same words is the same. What is done is not redone.

    Args:
        task: as in `offbeat.train`, or a file with a [sweep] section (docs/runs.md).
        solver: as in `offbeat.train`.
        cluster: as in `offbeat.train`.
        grid: lists of values by key: `{"optimizer.lr": [0.01, 0.05], "solver.name": ["sync", "asgd"]}`; it takes the
            place of the file's.
        points: instead of a grid, the points one by one: `[{"optimizer.lr": 0.01, "data.batch": 8}, ...]`.
        seeds: so many seeds each, or which; 1 unless given.
        out: the folder of the sweep.
        processes: runs side by side, all cores unless given.
        on: where runs are computed: `"here"`, in processes of this machine, or `"ray"`, on the machines of a Ray
            cluster, of which `address` says where it is. (`engine="ray"` is something else: real runs on Ray, one after
            another.)
        cpus: of the Ray cluster, set aside for each run; 1 unless given.
        again: run anew what is finished.
        dry_run: run and write nothing; return what would run, with disk and time.
        progress: whether progress is shown; in a notebook and on a terminal unless given.
        settings: any keys, as in `offbeat.train`, for all runs.
        words: all others are those of `offbeat.train`: `budget`, `batch`, `lr`, `engine`, ...
    """
    check_words("sweep", words, ("grid", "points", "seeds", "out", *HOW))
    where = Where(on, processes, take_address(on, words), cpus)
    if isinstance(solver, Mapping):
        raise ConfigError("a grid goes by its name: offbeat.sweep(task, grid={...})")
    values, objects = said(task, cluster, words, settings, solver)
    say_what_is_swept(values, grid, points, seeds)
    given = [word for word, value in {"solver": solver, **words}.items() if value is not None]
    fixed = {*keys_of(given), *(settings or ())}
    made = plan_sweep(values, out, task if isinstance(task, str | Path) else "the sweep", objects, fixed)
    if dry_run:
        return made.would_run(where)
    made.run_in_python("sweep", where, again, progress)
    return made
