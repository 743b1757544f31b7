"""What a run leaves: parameters, metrics, trace, summary - in memory, or read back from its folder."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch
from msgspec import convert

from offbeat.core.errors import ConfigError, StoreError
from offbeat.core.format import FORMAT, json_safe
from offbeat.core.legible import legible
from offbeat.core.task import Point, Task
from offbeat.folders.description import Description, Summary
from offbeat.folders.opening import there
from offbeat.folders.run_files import RunFiles
from offbeat.folders.side_notes import read_evaluation, read_partition
from offbeat.folders.tensor_files import read_point
from offbeat.lab.runs.trust import check_trusted

if TYPE_CHECKING:
    from offbeat.report.notebook import Plots
    from offbeat.report.pages.page import Page


@dataclass(frozen=True)
class Run:
    """A run, finished or not."""

    path: Path | None
    status: str
    why: str
    summary: dict[str, Any]
    config: dict[str, Any]
    metrics: pa.Table
    """One row an evaluation."""
    trace: pa.Table
    """One row a gradient."""
    point: Point = field(repr=False)
    best: Point | None = field(default=None, repr=False)
    task: Task | None = field(default=None, repr=False)
    ended: str | None = None
    """When it ended; None where it did not, or was kept in memory."""
    shown: bool = False
    """Whether it was found finished, and not run."""
    trust: bool = False
    """Whether code that the folder names may be run, whoever made the folder."""

    def said_shown(self, anew: str) -> str:
        """That it was shown and not run, in one line, and how to run it anew."""
        when = "" if self.ended is None else f" ended on {self.ended[:16].replace('T', ' ')} UTC"
        return f"shown, not run: {legible(self.path)}{when}; run it anew with {anew}"

    @property
    def params(self) -> torch.Tensor:
        """The final parameters, flat."""
        x: torch.Tensor = self.point.x
        return x

    @property
    def evaluation(self) -> dict[str, Any]:
        """Scores by class at the end, for each held-out set; empty where the task has none or the run no folder."""
        return {} if self.path is None else read_evaluation(self.path)

    @property
    def partition(self) -> dict[str, Any]:
        """Who had which labels; empty where the task has no dataset or the run no folder."""
        return {} if self.path is None else read_partition(self.path)

    def model(self, *, best: bool = False) -> torch.nn.Module:
        """The trained module, with the final parameters or the best ones seen.

        Where the run was loaded, this runs the code of its task: of a folder that was not made here by this user, code
        that is named in it runs only after `Run.load(path, trust=True)`.
        """
        from offbeat.lab.runs.tasks import recorded_task

        if self.task is None and self.path is not None:
            check_trusted(RunFiles.open(self.path), self.trust)
        task = self.task or recorded_task(self.config)
        if not hasattr(task, "module"):
            raise ConfigError(f"task {task.name!r} has no module: take run.params")
        point = self.best if best else self.point
        if point is None:
            raise ConfigError("the best parameters were not kept: run with evaluate.keep_best=true")
        made: torch.nn.Module = task.module(point)
        return made

    @property
    def plot(self) -> "Plots":
        """Figures by name: `run.plot.loss()`. They show in a notebook; `.save("loss.svg")` writes them."""
        from offbeat.report.notebook import Plots

        return Plots(self.files())

    def report(self, path: str | Path | None = None) -> "Page":
        """The page of this run, written to `path` if one is given; in a notebook it shows."""
        from offbeat.report.pages.build import build

        page = build([self.files()])
        if path is not None:
            page.save(path)
        return page

    def _repr_html_(self) -> str:
        from offbeat.report.notebook import html_run

        return html_run(self.files())

    def __repr__(self) -> str:
        score = next(
            (f", {k} {self.summary[k]:.4g}" for k in ("accuracy", "loss") if self.summary.get(k) is not None), ""
        )
        place = "in memory" if self.path is None else legible(self.path)
        said = (self.summary.get(k, "?") for k in ("solver", "task", "workers"))
        return "{} on {}, workers {}: {}{}, {}".format(*said, self.status, score, place)

    def files(self) -> "RunFiles":
        """What a report reads: the folder or, for a run in memory, the same tables."""
        if self.path is not None:
            return RunFiles.open(self.path)
        about = convert({k: v for k, v in json_safe(self.summary).items() if k != "run"}, Summary)
        info = Description(
            format=FORMAT,
            config=self.config,
            status=about.status,
            why=self.why,
            summary=about,
            seed=about.seed,
            clock="wall" if about.virtual_seconds is None else "virtual",
            task=self.config.get("task", {}),
        )
        tables = {"metrics.parquet": self.metrics, "trace.parquet": self.trace}
        return RunFiles(Path("(in memory)"), info, tables)

    @classmethod
    def load(cls, path: str | Path, *, task: Task | None = None, trust: bool = False) -> "Run":
        """A run from its folder. It reads data, and runs nothing.

        Args:
            path: the folder.
            task: the task, for a run that was made of Python objects.
            trust: let `model()` run code that the folder names, although it was not made here by you.
        """
        files = RunFiles.open(Path(path))
        return cls(
            path=files.path,
            status=files.status,
            why=files.info.why,
            summary={**files.summary, "run": str(files.path)},
            config=files.config,
            metrics=_there(files, files.metrics(), "metrics.parquet"),
            trace=_there(files, files.trace(), "trace.parquet"),
            point=read_point(files.path),
            best=read_point(files.path, "best.safetensors") if there(files.path, "best.safetensors") else None,
            task=task,
            ended=files.info.ended,
            trust=trust,
        )


def _there(files: RunFiles, table: pa.Table, name: str) -> pa.Table:
    """A table that a finished run has; RunFiles gives an empty one for a run that has not got that far."""
    if not table.column_names:
        raise StoreError(f"{files.path} has no {name}: the run has not ended")
    return table
