"""Figures for the page: plotly's JSON, with colour tokens that the page turns into the theme's colours.

This file has the figure as a whole: axes, legend, theme. `plotly_marks.py` has what is drawn in it.
"""

from typing import Any

import numpy as np

from offbeat.core.errors import ConfigError
from offbeat.report.draw import style
from offbeat.report.draw.figure import Arrows, Axis, Bars, Figure, Line, Mark, Path3, Points, Spans, Surface
from offbeat.report.draw.plotly_marks import text, traces

_MOST_NAMES = 16
"""A longer legend would leave no room for the figure; hovering tells the names."""


def spec(figure: Figure) -> dict[str, Any]:
    """`data` and `layout`; the page adds what all figures share."""
    layout: dict[str, Any] = {
        "xaxis": _axis(figure.x),
        "yaxis": _axis(figure.y),
        "height": figure.height,
        "barmode": "stack" if figure.stacked else "group",
        "hovermode": "x unified" if figure.unified else "closest",
        "shapes": [],
        "annotations": [],
        "showlegend": figure.least_names <= sum(_in_legend(m) for m in figure.marks) <= _MOST_NAMES,
    }
    surface = next((m for m in figure.marks if isinstance(m, Surface)), None)
    if surface is not None:
        azimuth = np.radians(surface.seen_from)
        layout["scene"] = {
            "xaxis": {"title": {"text": text(figure.x.title)}},
            "yaxis": {"title": {"text": text(figure.y.title)}},
            "zaxis": {"title": {"text": text(surface.label)}},
            "aspectmode": "cube",
            "camera": {
                "eye": {"x": 1.9 * float(np.cos(azimuth)), "y": 1.9 * float(np.sin(azimuth)), "z": 1.2},
                "center": {"x": 0, "y": 0, "z": -0.12},
            },
        }
        del layout["xaxis"], layout["yaxis"]
    if figure.square:
        layout["yaxis"] |= {"scaleanchor": "x", "constrain": "domain"}
        layout["xaxis"] |= {"constrain": "domain"}
    data: list[dict[str, Any]] = []
    for mark in figure.marks:
        data.extend(traces(mark, figure, layout))
    return {"data": data, "layout": layout}


def graph(figure: Figure) -> Any:
    """A plotly figure of its own, in the light theme."""
    try:
        from plotly import graph_objects
    except ImportError:
        raise ConfigError("interactive figures need plotly: pip install 'offbeat[figures]'") from None
    made = graph_objects.Figure(resolve(spec(figure)))
    made.update_layout(title={"text": text(figure.title)}, template="plotly_white")
    return made


def resolve(node: Any, theme: style.Theme = "light") -> Any:
    """The same tree with colours in place of tokens."""
    if isinstance(node, dict):
        return {k: resolve(v, theme) for k, v in node.items()}
    if isinstance(node, list):
        return [resolve(v, theme) for v in node]
    if isinstance(node, str) and node.startswith("@"):
        return style.colour(node, theme)
    return node


def _in_legend(mark: Mark) -> bool:
    if isinstance(mark, Line | Points):
        return mark.legend and bool(mark.name)
    return isinstance(mark, Bars | Spans | Arrows | Path3) and bool(mark.name)


def _axis(axis: Axis) -> dict[str, Any]:
    # A learning rate of 0.0001 is 10⁻⁴, and not 100µ.
    out: dict[str, Any] = {"title": {"text": text(axis.title)}, "exponentformat": "power"}
    if axis.log:
        out["type"] = "log"
    if axis.percent:
        out["tickformat"] = ".0%"
    if axis.categories is not None:
        out |= {"type": "category", "categoryorder": "array", "categoryarray": [text(c) for c in axis.categories]}
    if axis.start is not None and axis.end is not None:
        out["range"] = [float(np.log10(v)) if axis.log and v else v for v in (axis.start, axis.end)]
    elif axis.start == 0:
        out["rangemode"] = "tozero"
    if axis.ticks is not None:
        out |= {"tickvals": [v for v, _ in axis.ticks], "ticktext": [text(t) for _, t in axis.ticks]}
    if axis.reverse:
        if "range" in out:
            out["range"] = out["range"][::-1]
        else:
            out["autorange"] = "reversed"
    return out
