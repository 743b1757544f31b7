"""What more workers bring on a simulated cluster: samples a second, and the share of time that is waiting."""

from collections.abc import Mapping, Sequence
from typing import Any

from offbeat.report.draw.figure import Axis, Figure, Line, Mark, Points
from offbeat.report.draw.style import solver_colours

Rows = Sequence[Mapping[str, Any]]
"""One for each rule and number of workers, as `offbeat.time` makes them."""


def throughput(rows: Rows, stops: Mapping[str, int | None]) -> Figure:
    """One line a rule on logarithmic axes, the ideal dashed, a cross where a rule stops scaling."""
    colours = solver_colours(stops)
    marks: list[Mark] = [_ideal(rows)]
    ends: list[tuple[int, float]] = []
    for name, stop in stops.items():
        mine = {r["workers"]: r["samples_per_virtual_second"] for r in rows if r["solver"] == name}
        marks.append(Line(list(mine), list(mine.values()), name, colours[name], dots=True))
        if stop is not None and stop in mine:
            ends.append((stop, mine[stop]))
    if ends:
        marks.append(Points([n for n, _ in ends], [y for _, y in ends], "stops scaling", "@ink", 11, "x"))
    y = Axis("samples a virtual second", log=True)
    return Figure("Throughput", _counts(rows), y, tuple(marks), unified=True)


def waiting(rows: Rows) -> Figure:
    """One line a rule: the share of the workers' time in which they wait or send."""
    names = list(dict.fromkeys(r["solver"] for r in rows))
    colours = solver_colours(names)
    marks: list[Mark] = []
    for name in names:
        mine = [r for r in rows if r["solver"] == name]
        shares = [(r["communicating_share"] or 0.0) + (r["idle_share"] or 0.0) for r in mine]
        marks.append(Line([r["workers"] for r in mine], shares, name, colours[name], dots=True))
    y = Axis("share of time waiting or sending", percent=True, start=0, end=1.02)
    return Figure("Waiting", _counts(rows), y, tuple(marks), unified=True)


def _ideal(rows: Rows) -> Line:
    """What the workers would bring if they did nothing but compute."""
    ideal = {r["workers"]: r["ideal"] for r in rows}
    return Line(list(ideal), list(ideal.values()), "ideal", "@faint", "dash", 1.4)


def _counts(rows: Rows) -> Axis:
    """Powers of four, as numbers, where the counts are of many sizes."""
    counts = sorted({r["workers"] for r in rows})
    most = [n for n in (4**k for k in range(11)) if counts[0] <= n <= counts[-1]]
    ticks = tuple((float(n), f"{n:,}") for n in (most if len(most) > 2 else counts))
    return Axis("workers", log=True, ticks=ticks)
