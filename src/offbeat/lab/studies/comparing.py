"""`offbeat.compare`: solvers side by side, from the settings to verdict, table, picture and page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import pyarrow as pa

from offbeat.core.budget import Target
from offbeat.core.errors import ConfigError
from offbeat.core.task import Task
from offbeat.folders.run_files import RunFiles
from offbeat.lab.arguments import ClusterLike, SolverLike, StudyWords, Words, check_words, said
from offbeat.lab.runs.folder import metrics_table
from offbeat.lab.studies.compare import SolverLine, Spread, fairness, plan_comparison, summarise
from offbeat.lab.studies.dry_run import DryRun
from offbeat.lab.studies.places import HOW, Where, take_address
from offbeat.lab.studies.study import Study, ended
from offbeat.lab.studies.sweep import seeds_of

if TYPE_CHECKING:
    from offbeat.report.figures.comparison import Picture
    from offbeat.report.pages.page import Page

USUAL = ("plain", "sync", "asgd")


@dataclass(frozen=True)
class Comparison(Study):
    """Solvers side by side: `verdict` says who is better, `table` has the numbers, `plot()` and `report()` show it."""

    target: Target | None = None
    """Times are measured to this."""

    @cached_property
    def page(self) -> "Page | None":
        """The page about all runs that left a folder, in their order; None where none came to an end."""
        return self.report() if any(ended(c) for c in self.cells) else None

    @property
    def verdict(self) -> list[str]:
        """What was found, in sentences."""
        return [*(self.page.verdict if self.page else ()), *fairness(self.cells)]

    @property
    def lines(self) -> list[SolverLine]:
        """A line for each solver: means and standard deviations over the seeds."""
        return summarise(self.cells, self.target)

    @property
    def table(self) -> pa.Table:
        """One row a solver, as it is printed; a standard deviation is the column of its mean, and `_std`."""
        return metrics_table([_row(line) for line in self.lines])

    def plot(self, path: str | Path | None = None) -> "Picture":
        """Who reaches what when, at what cost, and where the time went; written to `path` if one is given."""
        from offbeat.report.figures.comparison import draw

        runs: dict[str, list[RunFiles]] = {}
        for cell in self.cells:
            if ended(cell):
                runs.setdefault(str(cell.keys["solver"]), []).append(RunFiles.open(cell.folder))
        if not runs:
            raise ConfigError("no run came to an end: there is nothing to draw")
        said = self.page.verdict[0] if self.page and self.page.verdict else ""
        picture = draw(runs, said=said, target=self.target)
        if path is not None:
            picture.save(path)
        return picture

    def report(self, path: str | Path | None = None, **options: Any) -> "Page":
        """The page about all runs, written to `path` if one is given; options are those of `offbeat.report`."""
        from offbeat.report.pages.build import report

        target = {} if self.target is None else {"target": str(self.target)}
        runs = [RunFiles.open(c.folder) for c in self.cells if (c.folder / "run.json").exists()]
        return report(runs, path, **{**target, **options})

    def __repr__(self) -> str:
        return "\n".join(self.verdict) or f"no verdict: {', '.join(self.failures) or 'nothing was run'}"

    def _repr_html_(self) -> str:
        from offbeat.report.notebook import html_table

        said = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.verdict)
        tables = [t for t in self.page.tables if t.key.startswith("outcomes")] if self.page else []
        return said + "".join(html_table(t.columns, t.rows) for t in tables)


Solvers = str | Sequence[SolverLike]


@overload
def compare(
    task: str | Path | Task,
    solvers: Solvers = USUAL,
    cluster: ClusterLike = None,
    *,
    seeds: int | Sequence[int] = 1,
    target: str | None = None,
    dry_run: Literal[False] = False,
    **words: Unpack[StudyWords],
) -> Comparison: ...
@overload
def compare(
    task: str | Path | Task,
    solvers: Solvers = USUAL,
    cluster: ClusterLike = None,
    *,
    seeds: int | Sequence[int] = 1,
    target: str | None = None,
    dry_run: Literal[True],
    **words: Unpack[StudyWords],
) -> DryRun: ...
def compare(
    task: str | Path | Task,
    solvers: Solvers = USUAL,
    cluster: ClusterLike = None,
    *,
    seeds: int | Sequence[int] = 1,
    target: str | None = None,
    out: str | Path | None = None,
    processes: int | None = None,
    on: str = "here",
    cpus: float | None = None,
    again: bool = False,
    dry_run: bool = False,
    progress: bool | None = None,
    settings: Mapping[str, Any] | None = None,
    **words: Unpack[Words],
) -> Comparison | DryRun:
    """Solvers side by side on one task and cluster, in processes; `offbeat compare` with the same words is the same.

    Plain SGD gets one worker, without delay and network. What is done is not run again; Ctrl-C saves what there is and
    raises KeyboardInterrupt, and the same call goes on.

    Args:
        task: as in `offbeat.train`.
        solvers: names, classes of your own, objects (`offbeat.solver("asgd", lr=0.1, label="slow asgd")`).
        cluster: as in `offbeat.train`.
        seeds: so many seeds each, or which.
        target: measure the time to `"accuracy=0.9"`.
        out: the folder of the comparison, `comparisons/<hash>` unless given.
        processes: runs side by side, all cores unless given.
        on: where runs are computed: `"here"`, in processes of this machine, or `"ray"`, on the machines of a Ray
            cluster, of which `address` says where it is. (`engine="ray"` is something else: real runs on Ray, one after
            another.)
        cpus: of the Ray cluster, set aside for each run; 1 unless given.
        again: run anew what is finished.
        dry_run: run and write nothing; return what would run, with disk and time.
        progress: whether progress is shown; in a notebook and on a terminal unless given.
        settings: any keys, as in `offbeat.train`; for one solver alone as `{"sync:optimizer.lr": 0.2}`.
        words: all others are those of `offbeat.train`: `budget`, `batch`, `lr`, `engine`, ...
    """
    check_words("compare", words, ("solvers", "seeds", "target", "out", *HOW))
    where = Where(on, processes, take_address(on, words), cpus)
    values, given = said(task, cluster, words)
    made = plan(values, solvers, seeds, target or words.get("until"), out, settings, given.task)
    if dry_run:
        return made.would_run(where)
    made.run_in_python("comparing", where, again, progress)
    return made


def plan(
    values: Mapping[str, Any],
    solvers: Solvers,
    seeds: int | Sequence[int],
    target: str | None,
    out: str | Path | None,
    settings: Mapping[str, Any] | None = None,
    task: Task | None = None,
) -> Comparison:
    """The comparison, before anything has run; everything is checked."""
    goal = None if target is None else Target.parse(target)
    names = [n.strip() for n in solvers.split(",") if n.strip()] if isinstance(solvers, str) else list(solvers)
    which = seeds_of(seeds, "seeds")
    cells, folder = plan_comparison(values, names, which, out, settings, task)
    return Comparison(cells, ["solver"], folder, goal)


def _row(line: SolverLine) -> dict[str, Any]:
    found: dict[str, Any] = {"solver": line.solver, "workers": line.workers, "seeds": line.seeds}
    for name in ("accuracy", "loss", "time_to_target", "seconds", "staleness", "idle"):
        spread: Spread = getattr(line, name)
        if spread.mean is not None:
            found |= {name: spread.mean, f"{name}_std": spread.std}
    statuses = ", ".join(f"{n} {s}" for s, n in line.statuses.items())
    return {**found, "speed_up": line.speed_up, "speed_up_over": line.over, "status": statuses}
