"""What the clock alone says of several rules, as a table."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from offbeat.lab.runs.folder import metrics_table
from offbeat.lab.studies.timing import Timed

COLUMNS = ("solver", "samples/s", "updates/s", "staleness", "computing", "waiting")
"""What a person sees of each rule."""
WHAT_COUNTS = "Virtual seconds. A gradient is of one sample unless --batch says more; an update is of one or many."


@dataclass(frozen=True)
class Timings:
    """What the clock alone says of each rule; `table` has a row for each, `timed` all there is to know of one."""

    timed: Mapping[str, Timed]
    """By solver, in the order in which they were named."""

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """Throughput, staleness, idle time, queueing: one dict a rule."""
        return [found.summary for found in self.timed.values()]

    @property
    def table(self) -> pa.Table:
        """One row a rule. Samples a second compare them: an update is of one gradient, or of many."""
        return metrics_table(self.summaries)

    def __repr__(self) -> str:
        rates = ((s["solver"], s["samples_per_virtual_second"]) for s in self.summaries)
        return ", ".join(f"{name}: {rate or 0:,.4g} samples a virtual second" for name, rate in rates)

    def _repr_html_(self) -> str:
        from offbeat.report.notebook import html_table

        return html_table(COLUMNS, [legible_row(s) for s in self.summaries]) + f"<small>{WHAT_COUNTS}</small>"


def legible_row(summary: Mapping[str, Any]) -> list[str]:
    """The values of `COLUMNS`, as text."""
    rates = [summary[k] for k in ("samples_per_virtual_second", "updates_per_virtual_second", "mean_staleness")]
    shares = [summary[k] for k in ("computing_share", "idle_share")]
    shown = ["-" if v is None else f"{v:,.4g}" for v in rates] + ["-" if v is None else f"{v:.1%}" for v in shares]
    return [str(summary["solver"]), *shown]
