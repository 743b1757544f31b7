"""A figure as data: axes with units and a few kinds of marks. One description, drawn twice: page and print."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Axis:
    """What is measured, and in what unit."""

    label: str = ""
    unit: str = ""
    log: bool = False
    start: float | None = None
    end: float | None = None
    percent: bool = False
    categories: tuple[str, ...] | None = None
    reverse: bool = False
    ticks: tuple[tuple[float, str], ...] | None = None

    @property
    def title(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True)
class Line:
    x: ArrayLike
    y: ArrayLike
    name: str
    colour: str
    dash: str = "solid"
    width: float = 2.0
    low: ArrayLike | None = None
    high: ArrayLike | None = None
    stairs: bool = False
    dots: bool = False
    legend: bool = True


@dataclass(frozen=True)
class Bars:
    """Side by side where the figure is not stacked; `base` moves a bar's foot."""

    x: ArrayLike
    y: ArrayLike
    name: str
    colour: str
    base: ArrayLike | None = None
    width: float | None = None
    errors: ArrayLike | None = None


@dataclass(frozen=True)
class Spans:
    """Horizontal bars on lanes: who did this from when to when."""

    lane: ArrayLike
    start: ArrayLike
    length: ArrayLike
    name: str
    colour: str
    notes: Sequence[str] | None = None
    width: float = 0.72


@dataclass(frozen=True)
class Points:
    x: ArrayLike
    y: ArrayLike
    name: str
    colour: str
    size: float = 7.0
    symbol: str = "circle"
    labels: Sequence[str] | None = None
    legend: bool = True


@dataclass(frozen=True)
class Arrows:
    x0: ArrayLike
    y0: ArrayLike
    x1: ArrayLike
    y1: ArrayLike
    name: str
    colour: str


@dataclass(frozen=True)
class Heat:
    """z[i, j] belongs to y[i], x[j]; `crossed` cells are marked, `texts` are written into the cells."""

    x: ArrayLike
    y: ArrayLike
    z: ArrayLike
    label: str
    scale: str = "viridis"
    texts: Sequence[Sequence[str]] | None = None
    crossed: ArrayLike | None = None
    low: float | None = None
    high: float | None = None
    contours: bool = False
    bar: bool = True


@dataclass(frozen=True)
class Rule:
    """A straight reference line across the figure."""

    at: float
    label: str
    along: str = "y"
    """The axis it crosses: "y" is a horizontal line at y = at."""
    colour: str = "@faint"


@dataclass(frozen=True)
class Surface:
    x: ArrayLike
    y: ArrayLike
    z: ArrayLike
    label: str
    seen_from: float = 45.0
    """Where the viewer stands, in degrees from the x axis towards the y axis."""


@dataclass(frozen=True)
class Path3:
    x: ArrayLike
    y: ArrayLike
    z: ArrayLike
    name: str
    colour: str


Mark = Line | Bars | Spans | Points | Arrows | Heat | Rule | Surface | Path3


@dataclass(frozen=True)
class Figure:
    """One picture. In a notebook it shows itself; `save` writes SVG, PNG or PDF in column width."""

    title: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    stacked: bool = False
    horizontal: bool = False
    square: bool = False
    unified: bool = False
    """Hovering shows all lines at that x."""
    height: int = 300
    least_names: int = 2
    """A legend of fewer says nothing; of one it does where colours have a meaning."""
    switches: tuple[str, ...] = ()
    """"y": the reader may switch the y axis to logarithmic."""

    def save(self, path: str | Path, *, width: float | None = None, title: bool = True) -> Path:
        """Writes .svg, .png or .pdf.

        width: in inches (default: one column of a paper).
        title: whether it is written above the figure; a paper has its caption instead (default: True).
        """
        from offbeat.report.draw.as_matplotlib import COLUMN, save

        return save(self if title else replace(self, title=""), Path(path), width=width or COLUMN)

    def plotly(self) -> Any:
        """The interactive figure as a `plotly.graph_objects.Figure`."""
        from offbeat.report.draw.as_plotly import graph

        return graph(self)

    def _repr_svg_(self) -> str:
        from offbeat.report.draw.as_matplotlib import svg

        return svg(self)


@dataclass(frozen=True)
class Chart:
    """A figure on the page, with a caption and the views that a reader can switch between."""

    key: str
    title: str
    views: Mapping[str, Figure]
    caption: str = ""
    wide: bool = False

    @classmethod
    def of(cls, key: str, figure: Figure, caption: str = "", *, wide: bool = False) -> "Chart":
        return cls(key, figure.title, {"": figure}, caption, wide)


def floats(values: ArrayLike) -> NDArray[np.float64]:
    """Numbers, None as NaN."""
    return np.asarray([np.nan if v is None else v for v in np.asarray(values, dtype=object).ravel()], np.float64)
