"""The loss landscape: surface and contours, with the trajectories on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offbeat.core.errors import StoreError
from offbeat.folders.parquet import read_numbers
from offbeat.folders.plain_values import read_json
from offbeat.folders.side_notes import LandscapeNote as About
from offbeat.report.draw.figure import Axis, Chart, Figure, Heat, Line, Mark, Path3, Points, Surface
from offbeat.report.draw.style import DASHES, solver_colours, variants
from offbeat.report.pages.page import Page, Section


@dataclass(frozen=True)
class Walk:
    """A trajectory on the plane."""

    name: str
    colour: str
    dash: str
    a: NDArray[np.float64]
    b: NDArray[np.float64]
    on_plane: NDArray[np.float64]
    loss: NDArray[np.float64]


@dataclass(frozen=True)
class Landscape:
    about: About
    a: NDArray[np.float64]
    b: NDArray[np.float64]
    loss: NDArray[np.float64]
    walks: Sequence[Walk]

    @property
    def explained(self) -> str:
        shares = self.about.explained
        if len(shares) == 2:
            return f"the plane holds {sum(shares):.1%} of the variance ({shares[0]:.1%} and {shares[1]:.1%})"
        return f"the plane holds {shares[0]:.1%} of the variance"


def read(folder: Path) -> Landscape:
    """From the folder that `offbeat landscape` filled."""
    try:
        about = read_json(folder, "landscape.json", About)
        grid = read_numbers(folder, "grid.parquet", "a", "b", "loss")
        paths = read_numbers(folder, "paths.parquet", "run", "a", "b", "loss_on_plane", "loss")
    except FileNotFoundError as e:
        raise StoreError(f"{folder} holds no landscape: it has no {Path(str(e.filename)).name}") from None
    side = about.grid
    if grid.num_rows != side * side:
        raise StoreError(f"{folder / 'grid.parquet'} cannot be read: it has not {side} x {side} rows")
    a, b, loss = (np.asarray(grid[n], float).reshape(side, side) for n in ("a", "b", "loss"))
    owner = np.asarray(paths["run"])
    if set(owner.tolist()) != set(range(len(about.solvers))):
        raise StoreError(f"{folder / 'paths.parquet'} cannot be read: its runs are not those of landscape.json")
    columns = {n: np.asarray(paths[n], float) for n in ("a", "b", "loss_on_plane", "loss")}
    walks: list[Walk] = []
    for i, (name, colour, dash) in enumerate(_styles(about)):
        values = [columns[n][owner == i] for n in ("a", "b", "loss_on_plane", "loss")]
        walks.append(Walk(name, colour, dash, *values))
    return Landscape(about, a[0], b[:, 0], loss, walks)


def _styles(about: About) -> list[tuple[str, str, str]]:
    """Name, colour and dash of each trajectory: a colour for each given name, or else for each solver."""
    if about.names:
        drawn = variants("", len(about.names), alone=True)
        return [(name, colour, dash) for name, (colour, dash) in zip(about.names, drawn, strict=True)]
    out: list[tuple[str, str, str]] = []
    seen: dict[str, int] = {}
    hues = solver_colours(about.solvers)
    for solver, seed in zip(about.solvers, about.seeds, strict=True):
        seen[solver] = seen.get(solver, -1) + 1
        several = len(set(about.seeds)) > 1 or about.solvers.count(solver) > 1
        name = f"{solver}, seed {seed}" if several else solver
        out.append((name, hues[solver], DASHES[seen[solver] % len(DASHES)]))
    return out


def _axes(found: Landscape) -> tuple[Axis, Axis]:
    if found.about.directions == "random":
        return Axis("random direction 1, in units of the weights"), Axis("random direction 2, in units of the weights")
    return Axis("first principal component"), Axis("second principal component")


def contour(found: Landscape, *, log: bool) -> Figure:
    """From above."""
    z = np.log10(np.maximum(found.loss, 1e-12)) if log else found.loss
    marks: list[Mark] = [Heat(found.a, found.b, z, _label(log), contours=True)]
    for w in found.walks:  # on a white band, so that every colour can be seen on every height
        marks.append(Line(w.a, w.b, w.name, "#FFFFFF", width=5, legend=False))
        marks.append(Line(w.a, w.b, w.name, w.colour, w.dash, 2.4, dots=True))
    ends = [(w.a[-1], w.b[-1]) for w in found.walks]
    marks.append(Points([found.walks[0].a[0]], [found.walks[0].b[0]], "start", "#FFFFFF", 9, "diamond", legend=False))
    marks.append(Points([e[0] for e in ends], [e[1] for e in ends], "end", "#FFFFFF", 11, "star", legend=False))
    x, y = _axes(found)
    return Figure("From above", x, y, tuple(marks), height=520)


def surface(found: Landscape, *, log: bool) -> Figure:
    """In three dimensions; the trajectories lie on the surface, at their nearest points of the plane."""
    lift = np.log10(np.maximum(found.loss, 1e-12)) if log else found.loss
    marks: list[Mark] = [Surface(found.a, found.b, lift, _label(log), _below(lift))]
    for w in found.walks:
        height = np.log10(np.maximum(w.on_plane, 1e-12)) if log else w.on_plane
        marks.append(Path3(w.a, w.b, height + 0.02 * float(np.ptp(lift)), w.name, w.colour))
    short = "PC" if found.about.directions == "pca" else "direction"
    x, y = Axis(f"{short} 1"), Axis(f"{short} 2")
    return Figure("As a surface", x, y, tuple(marks), height=560)


def _below(z: NDArray[np.float64]) -> float:
    """A viewpoint at the corner below the slope: from above it, the surface hides the trajectories."""
    with np.errstate(invalid="ignore"):  # a point where the loss is infinite says nothing
        steps = [np.diff(z, axis=axis) for axis in (0, 1)]
    up_y, up_x = (np.sign(d[np.isfinite(d)]).sum() > 0 for d in steps)
    return float(np.degrees(np.arctan2(-1 if up_y else 1, -1 if up_x else 1)))


def _label(log: bool) -> str:
    return "log10 of the held-out loss" if log else "held-out loss"


def charts(found: Landscape) -> list[Chart]:
    """Loss and its logarithm; the one that shows more comes first."""
    steep = bool(found.loss.max() > 20 * max(found.loss.min(), 1e-12))
    order = (True, False) if steep else (False, True)
    names = {True: "log loss", False: "loss"}
    said = "Diamond: start. Stars: ends. Points off the plane are drawn at its nearest point."
    return [
        Chart("landscape-surface", "As a surface", {names[g]: surface(found, log=g) for g in order}, wide=True),
        Chart("landscape-contour", "From above", {names[g]: contour(found, log=g) for g in order}, said, wide=True),
    ]


def page(found: Landscape) -> Page:
    about = found.about
    names = ", ".join(dict.fromkeys(w.name for w in found.walks))
    how = "principal components of all saved points" if about.directions == "pca" else "filter-normalised directions"
    lead = f"The held-out loss of {about.task} ({about.parameters:,} parameters) around the trajectories of "
    lead += f"{names}: "
    lead += f"{about.grid} × {about.grid} points on the plane of the {how}; {found.explained} of the trajectories."
    ends = ", ".join(f"{w.name} {w.loss[-1]:.4g} (on the plane {w.on_plane[-1]:.4g})" for w in found.walks)
    return Page(
        f"Loss landscape of {about.task}",
        [lead],
        [Section("", charts(found))],
        foot=f"loss at the ends: {ends}",
    )
