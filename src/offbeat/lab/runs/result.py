"""What a run leaves: parameters, metrics, trace, summary - in memory, or read back from its folder."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch

from offbeat.core.errors import ConfigError
from offbeat.core.task import Point, Task
from offbeat.lab.runs.folder import Folder

if TYPE_CHECKING:
    from offbeat.report.notebook import Plots
    from offbeat.report.pages.page import Page
    from offbeat.report.read import RunFiles


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

    def said_shown(self, anew: str) -> str:
        """That it was shown and not run, in one line, and how to run it anew."""
        when = "" if self.ended is None else f" ended on {self.ended[:16].replace('T', ' ')} UTC"
        return f"shown, not run: {self.path}{when}; run it anew with {anew}"

    @property
    def params(self) -> torch.Tensor:
        """The final parameters, flat."""
        x: torch.Tensor = self.point.x
        return x

    @property
    def evaluation(self) -> dict[str, Any]:
        """Scores by class at the end, for each held-out set; empty where the task has none or the run no folder."""
        return self._json("evaluation.json")

    @property
    def partition(self) -> dict[str, Any]:
        """Who had which labels; empty where the task has no dataset or the run no folder."""
        return self._json("partition.json")

    def _json(self, name: str) -> dict[str, Any]:
        file = None if self.path is None else self.path / name
        if file is None or not file.exists():
            return {}
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def model(self, *, best: bool = False) -> torch.nn.Module:
        """The trained module, with the final parameters or the best ones seen."""
        from offbeat.lab.runs.tasks import recorded_task

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
        place = "in memory" if self.path is None else str(self.path)
        said = (self.summary.get(k, "?") for k in ("solver", "task", "workers"))
        return "{} on {}, workers {}: {}{}, {}".format(*said, self.status, score, place)

    def files(self) -> "RunFiles":
        """What a report reads: the folder or, for a run in memory, the same tables."""
        from offbeat.report.read import RunFiles

        if self.path is not None:
            return RunFiles.open(self.path)
        info = {"config": self.config, "status": self.status, "why": self.why, "summary": self.summary}
        clock = "wall" if self.summary.get("virtual_seconds") is None else "virtual"
        info |= {"seed": self.summary.get("seed", 0), "clock": clock, "task": self.config.get("task", {})}
        tables = {"metrics.parquet": self.metrics, "trace.parquet": self.trace}
        return RunFiles(Path("(in memory)"), info, tables)

    @classmethod
    def load(cls, path: str | Path, *, task: Task | None = None) -> "Run":
        """A run from its folder."""
        folder = Folder(Path(path))
        info = folder.read()
        best = None
        if (folder.path / "best.safetensors").exists():
            best = _point(folder, "best.safetensors")
        return cls(
            path=folder.path,
            status=info["status"],
            why=info.get("why", ""),
            summary={**info.get("summary", {}), "run": str(folder.path)},
            config=info["config"],
            metrics=folder.read_table("metrics.parquet"),
            trace=folder.read_table("trace.parquet"),
            point=_point(folder, "weights.safetensors"),
            best=best,
            task=task,
            ended=info.get("ended"),
        )


def final_point(path: Path) -> Point:
    """The final parameters and buffers of a run's folder."""
    return _point(Folder(path), "weights.safetensors")


def _point(folder: Folder, name: str) -> Point:
    tensors, note = folder.read_tensors(name)
    x = torch.cat([tensors[f"param.{n}"].reshape(-1) for n in note["segments"]])
    buffers = {n.removeprefix("buffer."): t for n, t in tensors.items() if n.startswith("buffer.")}
    return Point(x, buffers or None)
