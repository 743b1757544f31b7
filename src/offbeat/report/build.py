"""From folders to a page."""

from collections.abc import Sequence

from offbeat.report import several, single
from offbeat.report.page import Page
from offbeat.report.read import RunFiles


def build(runs: Sequence[RunFiles], *, target: str | None = None, title: str | None = None) -> Page:
    """The page of one run, or of several compared."""
    return several.page(runs, target=target, title=title) if len(runs) > 1 else single.page(runs[0], title=title)
