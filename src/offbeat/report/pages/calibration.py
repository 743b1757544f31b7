"""What `offbeat calibrate` shows: the fitted cluster beside the runs that it was fitted to."""

from collections.abc import Mapping, Sequence

from offbeat.report.draw.figure import Chart
from offbeat.report.figures.fit_quality import Fitted, Floats, by_run, distribution, memory, over_time
from offbeat.report.pages.page import Page, Section
from offbeat.report.tables import Table

_MOST_RUNS = 12


def page(
    runs: Sequence[Fitted],
    left: Mapping[str, float],
    autocorrelation: tuple[Floats, float, Sequence[float]],
    found: Sequence[tuple[str, str, str]],
    unknown: Sequence[str],
    toml: str,
) -> Page:
    """`left` is fitted over measured mean, less 1, by run; `found` has a part, its value, and what it comes from."""
    shown = runs[:_MOST_RUNS]
    charts = [
        Chart(
            "distribution",
            "Times of a batch",
            {r.name: distribution(r) for r in shown},
            "One view a run. Times are divided by what the fit says of their mean.",
        ),
        Chart("left-over", "What is left over", {r.name: over_time(r) for r in shown}, "One point a batch."),
    ]
    if len(autocorrelation[0]):
        said = "Of the logarithms of times, pooled over workers and runs. Independent times have none."
        charts.append(Chart.of("memory", memory(*autocorrelation), said))
    if len(left) > 1:
        charts.append(Chart.of("by-run", by_run(left), "The mean time of a batch: above 0, the fit is too slow."))
    rows = [list(row) for row in found]
    table = Table("fit", "What was found", ["part", "value", "from"], rows, "")
    warnings = [f"These runs cannot tell {what}." for what in unknown]
    sections = [Section("Fit and data", charts), Section("What was found", tables=[table], folded=[("TOML", toml)])]
    lead = [f"A cluster for the simulator, fitted to {len(runs)} run{'s' if len(runs) > 1 else ''} on real machines."]
    return Page("Calibration", lead, sections, warnings=warnings)
