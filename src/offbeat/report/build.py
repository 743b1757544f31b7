"""From folders to a page."""

from collections.abc import Sequence

from offbeat.report import single
from offbeat.report.page import Page
from offbeat.report.read import RunFiles


def build(runs: Sequence[RunFiles], *, target: str | None = None, title: str | None = None) -> Page:
    """The page of one run, or of several compared."""
    return single.page(runs[0])
