"""The picture of a comparison: who reaches which accuracy when, at what cost in samples, and where the time went."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

from offbeat.core.budget import Target
from offbeat.core.errors import ConfigError
from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.as_matplotlib import FORMATS, plain
from offbeat.report.draw.style import MATPLOTLIB, colour, solver_colours
from offbeat.report.figures.curves import curve, extent, together
from offbeat.report.numbers import known, metric_name
from offbeat.report.targets import time_to

Runs = Mapping[str, Sequence[RunFiles]]
_LETTERS = 180
"""As many as fit into a line of the picture."""
_DPI = 130  # a README loads it


@dataclass(frozen=True)
class Picture:
    """A picture that shows itself in a notebook; `save` writes it as .png, .svg or .pdf."""

    figure: Any
    """A figure of matplotlib's."""

    def save(self, path: str | Path) -> Path:
        if Path(path).suffix.lstrip(".") not in FORMATS:
            raise ConfigError(f"a picture must be {', '.join(f'.{f}' for f in FORMATS)}, got {str(path)!r}")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with _matplotlib().rc_context(MATPLOTLIB):
            self.figure.savefig(path, dpi=_DPI)
        return Path(path)

    def _repr_png_(self) -> bytes:
        out = BytesIO()
        with _matplotlib().rc_context(MATPLOTLIB):
            self.figure.savefig(out, dpi=_DPI, format="png")
        return out.getvalue()


def draw(runs: Runs, *, said: str = "", target: Target | None = None) -> Picture:
    """The picture of each solver's runs; `said` is what was found, in a sentence."""
    with _matplotlib().rc_context(MATPLOTLIB):
        from matplotlib.figure import Figure

        unbroken = re.sub(r"\[.*?\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), plain(said))
        lines = fill(unbroken, _LETTERS)
        height = 0.34 + 0.17 * (lines.count("\n") + 1 if lines else 0)
        figure = Figure(figsize=(11.5, 4.2 + height), layout="constrained")
        parts: Any = figure.subfigures(2, 1, height_ratios=[height, 4.2])
        head, body = parts
        _head(head, runs, lines)
        by_time, by_epoch, shares = body.subplots(1, 3, width_ratios=[1.25, 1, 0.95])
        metric = "accuracy" if _has(runs, "accuracy") else "loss"
        along = "epoch" if _has(runs, "epoch") else "updates"
        _curves(by_time, runs, "time", metric)
        _curves(by_epoch, runs, along, metric)
        if (shown := extent(list(runs.values()), metric)) is not None:  # who diverged leaves it at the top
            by_time.set_ylim(shown)
            by_epoch.set_ylim(shown)
        by_time.set(title="Out of sync, in time", xlabel=f"{_clock(runs)} time (s)", ylabel=metric_name(metric))
        by_epoch.set(title="... and per sample", xlabel="epochs over all workers" if along == "epoch" else "updates")
        if target is not None and target.metric == metric:
            _target(by_time, by_epoch, runs, target)
        by_time.legend(loc="best")
        _time_shares(shares, runs)
    return Picture(figure)


def _matplotlib() -> Any:
    try:
        import matplotlib as mpl
    except ImportError:
        raise ConfigError("pictures need matplotlib: pip install 'offbeat[figures]'") from None
    return mpl


def _clock(runs: Runs) -> str:
    """Whose seconds the runs counted."""
    clocks = {run.clock for mine in runs.values() for run in mine}
    if len(clocks) > 1:
        raise ConfigError("runs in virtual and in wall time share no axis: draw them apart")
    return clocks.pop()


def _head(head: Any, runs: Runs, lines: str) -> None:
    """What is shown, and below it what was found."""
    every = [run for mine in runs.values() for run in mine]
    workers = max(run.workers for run in every)
    title = f"{' and '.join(dict.fromkeys(run.task for run in every))} on {workers} worker{'s' if workers > 1 else ''}"
    look = {"ha": "left", "va": "top", "color": colour("@ink"), "linespacing": 1.35}
    head.text(0.007, 0.93, plain(title), fontsize=12, fontweight="bold", **look)
    head.text(0.007, 0.93 - 0.26 / head.bbox.height * head.figure.dpi, lines, fontsize=9, **look)


def _target(by_time: Any, by_epoch: Any, runs: Runs, target: Target) -> None:
    """A line at the target, and on it when each solver got there, in the mean of its seeds."""
    for axes in (by_time, by_epoch):
        axes.axhline(target.value, color=colour("@faint"), linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    look = {"textcoords": "offset points", "color": colour("@faint")}
    where = by_time.get_yaxis_transform()
    by_time.annotate(f"target {target.value:g}", (0, target.value), (4, 3), xycoords=where, **look)
    _arrivals(by_time, runs, target)


def _arrivals(axes: Any, runs: Runs, target: Target) -> None:
    """A dot for each solver that got there in every seed, at its mean time; dots that would hide others lie on top."""
    from matplotlib.transforms import offset_copy

    dot = {"marker": "o", "markersize": 7, "markeredgecolor": colour("@paper"), "markeredgewidth": 1.2, "zorder": 5}
    times = {name: [time_to(run, target) for run in mine] for name, mine in runs.items()}
    means = {name: float(np.mean(known(found))) for name, found in times.items() if all(found)}
    wide = 0.025 * axes.get_xlim()[1]
    taken: list[tuple[float, int]] = []
    hues = solver_colours(runs)
    for name, at in sorted(means.items(), key=lambda pair: pair[1]):
        row = next(r for r in range(len(means)) if not any(r == other and at - x < wide for x, other in taken))
        taken.append((at, row))
        above = offset_copy(axes.transData, fig=axes.figure.figure, y=7 * row, units="points")
        axes.plot([at], [target.value], color=colour(hues[name]), transform=above, **dot)


def _has(runs: Runs, name: str) -> bool:
    """Whether the runs' metrics have values in a column."""
    return any(np.isfinite(run.metric(name)).any() for mine in runs.values() for run in mine)


def _curves(axes: Any, runs: Runs, x: str, y: str) -> None:
    """One line a solver, the mean over seeds; the band spans the seeds."""
    hues = solver_colours(runs)
    for name, mine in runs.items():
        grid, values = together([found for found in (curve(run, x, y) for run in mine) if len(found[0])])
        hue = colour(hues[name])
        axes.plot(grid, values.mean(0), color=hue, label=plain(name), linewidth=1.8)
        if len(values) > 1:
            axes.fill_between(grid, values.min(0), values.max(0), color=hue, alpha=0.13, linewidth=0)
    axes.set_xlim(left=0)
    axes.margins(x=0)


def _time_shares(axes: Any, runs: Runs) -> None:
    """Where the workers' time went, as shares of their presence."""
    names = [plain(name) for name in runs]
    left = np.zeros(len(names))
    kinds = {"computing": "computing_share", "delayed": "delayed_share"}
    kinds |= {"communicating": "communicating_share", "waiting": "idle_share"}
    for kind, column in kinds.items():
        share = np.array([np.mean([run.summary.get(column) or 0.0 for run in mine]) for mine in runs.values()])
        if share.max() < 1e-9:
            continue
        axes.barh(names, share, left=left, color=colour(f"@{kind}"), label=kind, height=0.62)
        for i, (start, width) in enumerate(zip(left, share, strict=True)):
            if width > 0.09:
                look = {"ha": "center", "va": "center", "color": colour("@ink"), "fontsize": 8}
                axes.text(start + width / 2, i, f"{width:.0%}", **look)
        left += share
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), title="Where the workers' time went")
    axes.set_xticks([0, 0.5, 1], ["0%", "50%", "100%"])
    axes.grid(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=4, fontsize=7.5, handlelength=1, columnspacing=1)
