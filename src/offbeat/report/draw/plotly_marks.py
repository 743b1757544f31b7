"""Each kind of mark as plotly's traces, shapes and annotations.

Plotly reads a little HTML in its texts, so every text is escaped here, once.
"""

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from offbeat.report.draw import style
from offbeat.report.draw.figure import Arrows, Bars, Figure, Heat, Line, Mark, Path3, Points, Rule, Spans, Surface

_DIGITS = 5


def text(value: object) -> str:
    """A text that shows as it is, whatever it holds."""
    return escape(str(value), quote=True)


def numbers(values: ArrayLike) -> list[Any]:
    """Numbers with as many digits as a picture can show; what is not finite is a gap."""
    array = np.asarray(values)
    if array.dtype.kind in "OUS":
        return [None if v is None else v if isinstance(v, int | float) else text(v) for v in array.tolist()]
    if array.dtype.kind in "iub":
        return [int(v) for v in array]
    return [float(f"{v:.{_DIGITS}g}") if np.isfinite(v) else None for v in array.tolist()]


def traces(mark: Mark, figure: Figure, layout: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The traces of a mark; a straight line across the figure goes into the layout instead."""
    match mark:
        case Line():
            yield from _line(mark)
        case Bars():
            across, up = numbers(mark.x), numbers(mark.y)
            bars: dict[str, Any] = {
                "type": "bar",
                "name": text(mark.name),
                "marker": {"color": mark.colour, "line": {"width": 0}},
            }
            bars |= {"x": up, "y": across, "orientation": "h"} if figure.horizontal else {"x": across, "y": up}
            if mark.width is not None:
                bars["width"] = mark.width
            if mark.base is not None:
                bars["base"] = numbers(mark.base)
            if mark.errors is not None:
                errors = {"type": "data", "array": numbers(mark.errors), "color": "@ink", "thickness": 1.2, "width": 3}
                bars["error_x" if figure.horizontal else "error_y"] = errors
            yield bars
        case Spans():
            yield {
                "type": "bar",
                "orientation": "h",
                "name": text(mark.name),
                "y": numbers(mark.lane),
                "x": numbers(mark.length),
                "base": numbers(mark.start),
                "marker": {"color": mark.colour, "line": {"width": 0.6 if mark.width < 0.5 else 0, "color": "@paper"}},
                "hovertext": None if mark.notes is None else [text(n) for n in mark.notes],
                "hoverinfo": "text+name" if mark.notes is not None else "name",
                "width": mark.width,
            }
        case Points():
            yield {
                "type": "scatter",
                "mode": "markers" if mark.labels is None else "markers+text",
                "name": text(mark.name),
                "x": numbers(mark.x),
                "y": numbers(mark.y),
                "text": None if mark.labels is None else [text(t) for t in mark.labels],
                "textposition": "top center",
                "textfont": {"size": 10, "color": "@ink"},
                "marker": {"color": mark.colour, "size": mark.size, "symbol": mark.symbol},
                "showlegend": mark.legend,
                "zorder": 2,
            }
        case Arrows():
            yield from _arrows(mark)
        case Heat():
            yield from _heat(mark)
        case Rule():
            _rule(mark, layout)
        case Surface():
            yield {
                "type": "surface",
                "x": numbers(mark.x),
                "y": numbers(mark.y),
                "z": [numbers(row) for row in np.asarray(mark.z)],
                "colorscale": _scale("viridis"),
                "colorbar": {"title": {"text": text(mark.label), "side": "right"}, "thickness": 12, "outlinewidth": 0},
                "opacity": 0.93,
                "showlegend": False,
            }
        case Path3():
            yield {
                "type": "scatter3d",
                "mode": "lines+markers",
                "name": text(mark.name),
                "x": numbers(mark.x),
                "y": numbers(mark.y),
                "z": numbers(mark.z),
                "line": {"color": mark.colour, "width": 5},
                "marker": {"color": mark.colour, "size": 3},
            }


def _line(mark: Line) -> Iterator[dict[str, Any]]:
    x = numbers(mark.x)
    name = text(mark.name)
    if mark.low is not None and mark.high is not None:
        low, high = numbers(mark.low), numbers(mark.high)
        yield {
            "type": "scatter",
            "x": x + x[::-1],
            "y": high + low[::-1],
            "fill": "toself",
            "fillcolor": style.faded(mark.colour, 0.16),
            "line": {"width": 0, "color": style.faded(mark.colour, 0)},
            "hoverinfo": "skip",
            "showlegend": False,
            "legendgroup": name,
            "name": name,
        }
    yield {
        "type": "scatter",
        "mode": "lines+markers" if mark.dots else "lines",
        "x": x,
        "y": numbers(mark.y),
        "name": name,
        "legendgroup": name,
        "showlegend": mark.legend,
        "line": {
            "color": mark.colour,
            "dash": mark.dash,
            "width": mark.width,
            "shape": "hv" if mark.stairs else "linear",
        },
        "marker": {"size": 6, "color": mark.colour},
    }


def _arrows(mark: Arrows) -> Iterator[dict[str, Any]]:
    """All arrows as one trace: shafts with gaps between, heads as markers that point along the way."""
    x0, y0, x1, y1 = (np.asarray(v, float) for v in (mark.x0, mark.y0, mark.x1, mark.y1))
    gap = np.full_like(x0, np.nan)
    yield {
        "type": "scatter",
        "mode": "lines+markers",
        "name": text(mark.name),
        "showlegend": bool(mark.name),
        "zorder": 1,
        "x": numbers(np.stack([x0, x1, gap], 1).ravel()),
        "y": numbers(np.stack([y0, y1, gap], 1).ravel()),
        "line": {"color": mark.colour, "width": 1.2},
        "marker": {"symbol": "arrow", "angleref": "previous", "size": [0, 8, 0] * len(x0), "color": mark.colour},
        "hoverinfo": "skip",
    }


def _heat(mark: Heat) -> Iterator[dict[str, Any]]:
    x, y = numbers(mark.x), numbers(mark.y)
    z = np.asarray(mark.z, float)
    trace: dict[str, Any] = {
        "type": "contour" if mark.contours else "heatmap",
        "x": x,
        "y": y,
        "z": [numbers(row) for row in z],
        "colorscale": _scale(mark.scale),
        "hoverongaps": False,
        "showscale": mark.bar,
        "colorbar": {"title": {"text": text(mark.label), "side": "right"}, "thickness": 12, "outlinewidth": 0},
    }
    if mark.low is not None and mark.high is not None:
        trace |= {"zmin": mark.low, "zmax": mark.high}
    if mark.contours:
        trace |= {"ncontours": 24, "line": {"width": 0.5, "color": "@paper/0.45"}}
    elif z.size <= 900:
        trace |= {"xgap": 2, "ygap": 2}
    if mark.texts is not None:
        trace |= {"text": [[text(t) for t in row] for row in mark.texts], "texttemplate": "%{text}"}
    yield trace
    if mark.crossed is not None and np.any(mark.crossed):
        rows, columns = np.nonzero(np.asarray(mark.crossed))
        yield {
            "type": "scatter",
            "mode": "markers",
            "name": "diverged or stalled",
            "x": [x[j] for j in columns],
            "y": [y[i] for i in rows],
            "marker": {"symbol": "x-thin", "size": 11, "line": {"color": "@bad", "width": 2}},
            "hoverinfo": "skip",
            "showlegend": False,
        }


def _rule(mark: Rule, layout: dict[str, Any]) -> None:
    other = "x" if mark.along == "y" else "y"
    place = {f"{mark.along}0": mark.at, f"{mark.along}1": mark.at, f"{other}0": 0, f"{other}1": 1}
    refs = {f"{mark.along}ref": mark.along, f"{other}ref": "paper"}
    layout["shapes"].append(
        {"type": "line", "line": {"color": mark.colour, "width": 1.2, "dash": "dash"}, **place, **refs}
    )
    note = {"text": text(mark.label), "showarrow": False, "font": {"size": 11, "color": mark.colour}, **refs}
    if mark.along == "y":
        note |= {"x": 0, "y": mark.at, "xanchor": "left", "yanchor": "bottom", "xshift": 4}
    else:
        note |= {"x": mark.at, "y": 1, "xanchor": "left", "yanchor": "top", "xshift": 4}
    layout["annotations"].append(note)


def _scale(name: str) -> list[list[Any]]:
    if name.startswith("@"):
        return [[0, "@paper"], [1, name]]
    colours = style.DIVERGING if name == "diverging" else style.VIRIDIS
    return [[i / (len(colours) - 1), c] for i, c in enumerate(colours)]
