"""The picture of a comparison: who reaches which accuracy when, at what cost in samples, and where the time went."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import ConfigError
from offbeat.report.read import RunFiles
from offbeat.report.style import MATPLOTLIB, colour, solver_colour


def draw(runs: Mapping[str, Sequence[Path]], out: Path, *, title: str, target: tuple[str, float] | None = None) -> None:
    """Writes `out` (.png, .svg or .pdf) from the folders of each solver's runs."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("pictures need matplotlib: pip install 'offbeat[figures]'") from None
    opened = {name: [RunFiles.open(p) for p in paths] for name, paths in runs.items()}
    with mpl.rc_context(MATPLOTLIB):
        figure = Figure(figsize=(11.5, 4.3), layout="constrained")
        by_time, by_epoch, shares = figure.subplots(1, 3, width_ratios=[1.25, 1, 0.95])
        metric = "accuracy" if _has(opened, "accuracy") else "loss"
        _curves(by_time, opened, "time", metric)
        _curves(by_epoch, opened, "epoch" if _has(opened, "epoch") else "updates", metric)
        by_time.set(title="Out of sync, in time", xlabel="virtual time (s)", ylabel=f"held-out {metric}")
        by_epoch.set(title="... and per sample", xlabel="epochs over all workers")
        if not _has(opened, "epoch"):
            by_epoch.set_xlabel("updates")
        if target is not None and target[0] == metric:
            for axes in (by_time, by_epoch):
                axes.axhline(target[1], color=colour("@faint"), linewidth=0.9, linestyle=(0, (4, 3)))
            look = {"textcoords": "offset points", "color": colour("@faint")}
            where = by_time.get_yaxis_transform()
            by_time.annotate(f"target {target[1]:g}", (0, target[1]), (4, 3), xycoords=where, **look)
        by_time.legend(loc="lower right" if metric == "accuracy" else "upper right")
        _time_shares(shares, opened)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=colour("@ink"))
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=130)  # a README loads it


def _has(opened: Mapping[str, Sequence[RunFiles]], name: str) -> bool:
    """Whether the runs' metrics have values in a column."""
    for runs in opened.values():
        for run in runs:
            table = run.metrics()
            if name in table.column_names and table[name].null_count < table.num_rows:
                return True
    return False


def _curves(axes: Any, opened: Mapping[str, Sequence[RunFiles]], x_name: str, y_name: str) -> None:
    """One line a solver, the mean over seeds; the band spans the seeds."""
    for name, runs in opened.items():
        curves = [_columns(run, x_name, y_name) for run in runs]
        end = min(x[-1] for x, _ in curves)
        grid = np.linspace(0, end, 200)
        values = np.stack([np.interp(grid, x, y) for x, y in curves])
        hue = colour(solver_colour(name))
        axes.plot(grid, values.mean(0), color=hue, label=name, linewidth=1.8)
        if len(curves) > 1:
            axes.fill_between(grid, values.min(0), values.max(0), color=hue, alpha=0.18, linewidth=0)
    axes.set_xlim(left=0)
    axes.margins(x=0)


def _columns(run: RunFiles, x_name: str, y_name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    table = run.metrics()
    x, y = (np.array([np.nan if v is None else v for v in table[n].to_pylist()], float) for n in (x_name, y_name))
    known = np.isfinite(x) & np.isfinite(y)
    return x[known], y[known]


def _time_shares(axes: Any, opened: Mapping[str, Sequence[RunFiles]]) -> None:
    """Where the workers' time went, as shares of their presence."""
    names = list(opened)
    left = np.zeros(len(names))
    kinds = {"computing": "computing_share", "delayed": "delayed_share"}
    kinds |= {"communicating": "communicating_share", "waiting": "idle_share"}
    for kind, column in kinds.items():
        share = np.array([np.mean([run.summary.get(column) or 0.0 for run in opened[n]]) for n in names])
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
