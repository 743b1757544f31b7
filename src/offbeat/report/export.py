"""Every figure and every table of a report as a file of its own."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from offbeat.core.errors import StoreError, unknown
from offbeat.folders.run_files import RunFiles
from offbeat.report import tables
from offbeat.report.draw import as_matplotlib
from offbeat.report.draw.figure import Chart
from offbeat.report.pages.build import build

Save = Callable[[Path], Iterator[Path]]


def save_figures(
    runs: Sequence[RunFiles], form: str | None, width: float, target: str | None, *, title: bool = True
) -> Save:
    """Each in the given form, or as SVG and PNG, with titles or without. Views of one figure get names of their own."""
    forms = _forms(form, as_matplotlib.FORMATS, ("svg", "png"))
    return figures_of(build(runs, target=target).charts, forms, width, title=title)


def figures_of(charts: Sequence[Chart], forms: Sequence[str], width: float, *, title: bool = True) -> Save:
    """The same of any charts."""

    def save(folder: Path) -> Iterator[Path]:
        for chart in charts:
            for n, (view, figure) in enumerate(chart.views.items()):
                name = chart.key if n == 0 else f"{chart.key}-{view.replace(' ', '-')}"
                for f in forms:
                    yield figure.save(folder / f"{name}.{f}", width=width, title=title)

    return save


def save_tables(runs: Sequence[RunFiles], form: str | None, target: str | None) -> Save:
    """Each in the given form, or as CSV, Markdown and LaTeX; for one run also its metrics and summary."""
    forms = _forms(form, tables.FORMATS, tables.FORMATS)
    every = build(runs, target=target).tables
    if len(runs) == 1:
        metrics = runs[0].metrics()
        rows = [list(row.values()) for row in metrics.to_pylist()]
        every += [tables.Table("metrics", "Metrics", metrics.column_names, rows)]
        flat = {k: v for k, v in runs[0].summary.items() if not isinstance(v, list | dict)}
        every += [tables.Table("summary", "Summary", ["name", "value"], [[k, v] for k, v in flat.items()])]
    return tables_of(every, forms)


def tables_of(every: Sequence[tables.Table], forms: Sequence[str] = tables.FORMATS) -> Save:
    """The same of any tables."""

    def save(folder: Path) -> Iterator[Path]:
        for table in every:
            for f in forms:
                path = folder / f"{table.key}.{f}"
                try:
                    folder.mkdir(parents=True, exist_ok=True)
                    path.write_text(table.text(f), encoding="utf-8")
                except OSError as e:
                    raise StoreError(f"cannot write {path}: {e.strerror}") from None
                yield path

    return save


def _forms(given: str | None, known: Sequence[str], default: Sequence[str]) -> Sequence[str]:
    if given is None:
        return default
    chosen = [f.strip() for f in given.split(",")]
    for f in chosen:
        if f not in known:
            raise unknown("format", f, known)
    return chosen
