"""`offbeat export`: what a report holds, as files for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from offbeat.cli.report import RunsArg
from offbeat.core.errors import ConfigError, unknown

KINDS = ("figures", "tables", "perfetto", "tensorboard")


def export(
    what: Annotated[str, typer.Argument(help=", ".join(KINDS), autocompletion=lambda incomplete: list(KINDS))],
    folders: RunsArg,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="a folder; for perfetto a .json file")] = None,
    form: Annotated[str | None, typer.Option("--format", help="svg, png or pdf; csv, md or tex")] = None,
    width: Annotated[float, typer.Option(help="of figures, in inches: 3.35 is a column, 6.9 a page")] = 3.35,
    target: Annotated[str | None, typer.Option(help="measure the time to: accuracy=0.9")] = None,
    title: Annotated[bool, typer.Option(help="write figures' titles above them; a paper has captions")] = True,
) -> None:
    """Figures (SVG, PNG, PDF), tables (CSV, Markdown, LaTeX), a timeline for Perfetto, curves for TensorBoard."""
    from offbeat.folders.finding import find
    from offbeat.report import chrome_trace, tensorboard
    from offbeat.report.export import save_figures, save_tables

    if what not in KINDS:
        raise unknown("export", what, KINDS)
    if not 0.5 <= width <= 40:
        raise ConfigError(f"--width must be between 0.5 and 40 inches, got {width:g}")
    runs = find(folders, whole=True)
    if what == "perfetto":
        path = chrome_trace.write(runs, out or Path("trace.json"))
        print(f"{path}  open it at https://ui.perfetto.dev")
    elif what == "tensorboard":
        folder = tensorboard.write(runs, out or Path("tensorboard"))
        print(f"{folder}  show it with: tensorboard --logdir {folder}")
    else:
        figures = what == "figures"
        save = save_figures(runs, form, width, target, title=title) if figures else save_tables(runs, form, target)
        for path in save(out or Path(what)):
            print(path)
