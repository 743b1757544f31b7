"""What `offbeat time` shows of growing numbers of workers: where each rule stops scaling, and why."""

from collections.abc import Mapping, Sequence

from offbeat.report.draw.figure import Chart, Figure
from offbeat.report.draw.style import solver_colours
from offbeat.report.figures.by_workers import Rows
from offbeat.report.pages.page import Page, Section
from offbeat.report.tables import Table

_LEAD = "Timing alone: no model, no training, virtual time. More samples a second is not yet less time to a good model."
_THROUGHPUT = (
    "Ideal is what the workers would bring if they did nothing but compute. A rule has stopped to scale (cross) where "
    "more workers bring less than half of their share: twice as many, less than half as much again. The reason is the "
    "part of the cluster without which it would be fastest there."
)
_COLUMNS = (
    "solver",
    "workers",
    "samples_per_virtual_second",
    "efficiency",
    "mean_staleness",
    "computing_share",
    "communicating_share",
    "idle_share",
    "server_busy_share",
)


def table(rows: Rows) -> Table:
    named = [name.replace("idle", "waiting").replace("_", " ") for name in _COLUMNS]
    cells = [[row[c] if c in ("solver", "workers") else _short(row[c]) for c in _COLUMNS] for row in rows]
    return Table("scaling", "All numbers", named, cells, "Shares are of the workers' time, the last of the server's.")


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def page(rows: Rows, figures: Mapping[str, Figure], verdict: Sequence[str], about: str) -> Page:
    charts = [
        Chart.of("throughput", figures["throughput"], _THROUGHPUT, wide=True),
        Chart.of(
            "waiting", figures["waiting"], "Sending, waiting for the server, for others or for batches.", wide=True
        ),
    ]
    colours = solver_colours(row["solver"] for row in rows)
    lead = [_LEAD, about] if about else [_LEAD]
    sections = [Section("", charts), Section("All numbers", tables=[table(rows)])]
    return Page("What do more workers bring?", lead, sections, verdict=verdict, colours=colours)
