"""Figures for paper: the same description drawn by matplotlib, in column width."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from offbeat.core.errors import ConfigError, StoreError
from offbeat.report.draw.figure import (
    Arrows,
    Axis,
    Bars,
    Figure,
    Heat,
    Line,
    Mark,
    Path3,
    Points,
    Rule,
    Spans,
    Surface,
    floats,
)
from offbeat.report.draw.style import DIVERGING, MATPLOTLIB, VIRIDIS, colour

COLUMN, PAGE = 3.35, 6.9
"""Inches: one column of a two-column paper, and both."""
FORMATS = ("svg", "png", "pdf")

_DASH = {"solid": "-", "dash": (0, (5, 2)), "dot": (0, (1, 1.5)), "dashdot": (0, (5, 2, 1, 2))}
_SYMBOL = {"circle": "o", "x": "x", "star": "*", "diamond": "D", "square": "s"}


def save(figure: Figure, path: Path, *, width: float = COLUMN) -> Path:
    if path.suffix.lstrip(".") not in FORMATS:
        raise ConfigError(f"a figure is saved as {', '.join('.' + f for f in FORMATS)}, got {path.name!r}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(figure, width, path)
    except OSError as e:
        raise StoreError(f"cannot write {path}: {e.strerror}") from None
    return path


def svg(figure: Figure) -> str:
    out = io.StringIO()
    draw(figure, PAGE * 0.8, out)
    return out.getvalue()


def draw(figure: Figure, width: float, out: Path | io.StringIO) -> None:
    """Draws and writes it, to a file or as SVG text."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        raise ConfigError("pictures need matplotlib: pip install 'offbeat[figures]'") from None
    look: Any = {"font.size": 7.5, "axes.titlesize": 8.5, "legend.fontsize": 6.5, "lines.linewidth": 1.2}
    with mpl.rc_context(MATPLOTLIB | (look if width < 5 else {})):
        spatial = any(isinstance(m, Surface) for m in figure.marks)
        share = 0.85 if spatial or figure.square else 0.62 * figure.height / 300
        canvas = Canvas(figsize=(width, width * min(share, 1.4)), layout="constrained")
        axes = canvas.add_subplot(projection="3d" if spatial else None)
        stack: dict[Any, float] = {}  # the height reached by stacked bars, at each place
        for mark in figure.marks:
            _draw(axes, mark, figure, stack)
        axes.set_title(plain(figure.title))
        if spatial:
            axes.set(xlabel=plain(figure.x.title), ylabel=plain(figure.y.title))
        else:
            _axis(axes, "x", figure.x)
            _axis(axes, "y", figure.y)
        handles, labels = axes.get_legend_handles_labels()
        if len(labels) >= figure.least_names:
            if any(isinstance(m, Bars | Spans | Heat) for m in figure.marks):
                _legend_below(canvas, handles, labels, most=4 if width < 5 else 8)
            else:
                axes.legend(handles, labels, handlelength=1.6, ncols=2 if len(labels) > 5 else 1)
        vector = not isinstance(out, Path) or out.suffix == ".svg"
        written: dict[str, Any] = {"format": "svg" if vector else None, "metadata": {"Date": None} if vector else None}
        canvas.savefig(out, dpi=300, **written)


def _legend_below(canvas: Any, handles: list[Any], labels: list[str], most: int) -> None:
    """Bars and heat maps leave no room for a legend on them. As many columns as the picture is wide."""
    for columns in range(min(len(labels), most), 0, -1):
        legend = canvas.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=1.2)
        if columns == 1 or legend.get_window_extent().width <= canvas.bbox.width:
            return
        legend.remove()


def _axis(axes: Any, name: str, axis: Axis) -> None:
    getattr(axes, f"set_{name}label")(plain(axis.title))
    if axis.log:
        getattr(axes, f"set_{name}scale")("log")
    if axis.percent:
        from matplotlib.ticker import PercentFormatter

        getattr(axes, f"{name}axis").set_major_formatter(PercentFormatter(1.0, decimals=0))
    if axis.start is not None or axis.end is not None:
        getattr(axes, f"set_{name}lim")(axis.start, axis.end)
    if axis.ticks is not None:
        from matplotlib.ticker import NullLocator

        getattr(axes, f"set_{name}ticks")([v for v, _ in axis.ticks], [plain(t) for _, t in axis.ticks])
        getattr(axes, f"{name}axis").set_minor_locator(NullLocator())  # a logarithmic axis would write others between
    if axis.reverse and not getattr(axes, f"{name}axis_inverted")():
        getattr(axes, f"invert_{name}axis")()


def _draw(axes: Any, mark: Mark, figure: Figure, stack: dict[Any, float]) -> None:
    match mark:
        case Line():
            x, y = _place(mark.x), floats(mark.y)
            name = plain(mark.name) if mark.legend and mark.name else None
            look: dict[str, Any] = {"drawstyle": "steps-post"} if mark.stairs else {}
            look |= {"marker": "o", "markersize": 3} if mark.dots else {}
            axes.plot(x, y, color=colour(mark.colour), linestyle=_DASH[mark.dash], label=name, **look)
            if mark.low is not None and mark.high is not None:
                low, high = floats(mark.low), floats(mark.high)
                axes.fill_between(x, low, high, color=colour(mark.colour), alpha=0.16, linewidth=0)
        case Bars():
            _bars(axes, mark, figure, stack)
        case Spans():
            edge: dict[str, Any] = {"linewidth": 0.4, "edgecolor": "white"} if mark.width < 0.5 else {"linewidth": 0}
            bars = {"left": floats(mark.start), "height": mark.width, "color": colour(mark.colour), **edge}
            axes.barh(_place(mark.lane), floats(mark.length), label=plain(mark.name), **bars)
        case Points():
            x, y = _place(mark.x), _place(mark.y)
            name = plain(mark.name) if mark.legend and mark.name else None
            symbol = _SYMBOL.get(mark.symbol, "o")
            axes.scatter(x, y, s=mark.size**2 / 2.5, color=colour(mark.colour), marker=symbol, label=name, zorder=3)
            for at, up, label in zip(x, y, mark.labels or (), strict=False):
                axes.annotate(plain(label), (at, up), (0, 3), textcoords="offset points", ha="center", fontsize=6)
        case Arrows():
            look = {"arrowstyle": "-|>", "color": colour(mark.colour), "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
            for x0, y0, x1, y1 in zip(*(floats(v) for v in (mark.x0, mark.y0, mark.x1, mark.y1)), strict=True):
                axes.annotate("", (x1, y1), (x0, y0), arrowprops=look)
        case Heat():
            _heat(axes, mark)
        case Rule():
            line = axes.axhline if mark.along == "y" else axes.axvline
            line(mark.at, color=colour(mark.colour), linewidth=0.9, linestyle=_DASH["dash"])
            look = {"textcoords": "offset points", "color": colour(mark.colour), "fontsize": 6.5}
            if mark.along == "y":
                where = axes.get_yaxis_transform()
                axes.annotate(plain(mark.label), (0, mark.at), (3, 2), xycoords=where, **look)
            else:
                where = axes.get_xaxis_transform()
                axes.annotate(plain(mark.label), (mark.at, 1), (3, -3), xycoords=where, va="top", **look)
        case Surface():
            x, y = np.meshgrid(floats(mark.x), floats(mark.y))
            axes.plot_surface(x, y, np.asarray(mark.z, float), cmap=_map("viridis"), alpha=0.85, linewidth=0)
            axes.set_zlabel(plain(mark.label))
            axes.view_init(elev=35, azim=mark.seen_from)
            axes.set_box_aspect(None, zoom=0.85)  # the label of the third axis has no room of its own
        case Path3():
            axes.plot(
                floats(mark.x),
                floats(mark.y),
                floats(mark.z),
                color=colour(mark.colour),
                label=plain(mark.name),
                marker="o",
                markersize=2,
            )


def _bars(axes: Any, mark: Bars, figure: Figure, stack: dict[Any, float]) -> None:
    x = list(_place(mark.x))
    y = floats(mark.y)
    base = np.array([stack.get(v, 0.0) if figure.stacked else 0.0 for v in x])
    base = base if mark.base is None else floats(mark.base)
    bar = axes.barh if figure.horizontal else axes.bar
    size = {"height" if figure.horizontal else "width": mark.width or 0.7}
    foot = {"left" if figure.horizontal else "bottom": base}
    errors: dict[str, Any] = (
        {} if mark.errors is None else {"xerr" if figure.horizontal else "yerr": floats(mark.errors)}
    )
    errors |= {"error_kw": {"linewidth": 0.8, "ecolor": colour("@ink")}} if errors else {}
    bar(x, y, color=colour(mark.colour), label=plain(mark.name) or None, linewidth=0, **size, **foot, **errors)
    stack.update(zip(x, base + y, strict=True))


def _heat(axes: Any, mark: Heat) -> None:
    x, y, z = np.asarray(mark.x), np.asarray(mark.y), np.asarray(mark.z, float)
    look: dict[str, Any] = {"cmap": _map(mark.scale), "vmin": mark.low, "vmax": mark.high}
    axes.grid(False)
    if mark.contours:
        shown = axes.contourf(x.astype(float), y.astype(float), z, 24, **look)
    else:
        xs = x if x.dtype.kind in "if" else np.arange(len(x))
        ys = y if y.dtype.kind in "if" else np.arange(len(y))
        shown = axes.pcolormesh(_edges(xs), _edges(ys), z, rasterized=z.size > 2500, **look)
        if xs is not x:
            axes.set_xticks(xs, [plain(v) for v in x])
        if ys is not y:
            axes.set_yticks(ys, [plain(v) for v in y])
        for i, j in np.argwhere(np.asarray(mark.crossed)) if mark.crossed is not None else ():
            axes.plot(xs[j], ys[i], marker="x", color=colour("@bad"), markersize=6)
        low = mark.low if mark.low is not None else np.nanmin(z, initial=np.inf)
        high = mark.high if mark.high is not None else np.nanmax(z, initial=-np.inf)
        middle = low + 0.6 * (high - low)
        for i, row in enumerate(mark.texts or ()):
            for j, label in enumerate(row):
                ink = "black" if (z[i, j] > middle) != mark.scale.startswith("@") else "white"
                axes.text(xs[j], ys[i], plain(label), ha="center", va="center", fontsize=5.5, color=ink)
    if mark.bar:
        axes.figure.colorbar(shown, ax=axes, label=plain(mark.label)).outline.set_visible(False)


def _edges(centres: Any) -> Any:
    """Where cells around these places meet; one alone is as wide as a step."""
    if len(centres) == 1:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    middles = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[1.5 * centres[0] - 0.5 * centres[1]], middles, [1.5 * centres[-1] - 0.5 * centres[-2]]])


def _map(name: str) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    if name.startswith("@"):
        stops = [colour("@paper"), colour(name)]
    else:
        stops = list(DIVERGING if name == "diverging" else VIRIDIS)
    return LinearSegmentedColormap.from_list(name, stops)


def _place(values: ArrayLike) -> Any:
    """Numbers as they are, names as text."""
    array = np.asarray(values)
    return [plain(v) for v in array.tolist()] if array.dtype.kind in "US" else floats(values)


def plain(text: object) -> str:
    """A user's text is not mathematics: a dollar is a dollar."""
    return str(text).replace("$", r"\$")
