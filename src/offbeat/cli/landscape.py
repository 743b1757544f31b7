"""`offbeat landscape`: the loss around the saved trajectories of runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from offbeat.cli.options import TrustOpt
from offbeat.cli.report import RunsArg
from offbeat.core.errors import ConfigError


def landscape(
    folders: RunsArg,
    out: Annotated[Path, typer.Option("--out", "-o", help="a page (.html), or pictures (.svg, .png, .pdf)")] = Path(
        "landscape.html"
    ),
    directions: Annotated[str, typer.Option(help="pca (of the trajectories) or random (filter-normalised)")] = "pca",
    grid: Annotated[int, typer.Option(help="points a side")] = 30,
    margin: Annotated[float, typer.Option(help="room around the trajectories, as a share of their extent")] = 0.25,
    seed: Annotated[int, typer.Option(help="of random directions")] = 0,
    pool: Annotated[int | None, typer.Option(help="points evaluated side by side (default: all cores)")] = None,
    trust: TrustOpt = False,
) -> None:
    """The held-out loss around the trajectories of runs that were made with --saves-per-epoch: surface and contours."""
    from offbeat.folders.finding import find
    from offbeat.lab.studies.landscape import compute
    from offbeat.report.draw.as_matplotlib import FORMATS
    from offbeat.report.figures import loss_surface as drawn

    if out.suffix.lstrip(".") not in ("html", *FORMATS):
        raise ConfigError(f"--out must be .html, .svg, .png or .pdf, got {out.name!r}")
    if pool is not None and pool < 1:
        raise ConfigError(f"--pool must be a number from 1, got {pool}")
    runs = [r.path for r in find(folders)]
    data = out.with_suffix("")
    settings = {"directions": directions, "grid": grid, "margin": margin, "seed": seed}
    with _progress() as progress:
        fresh = compute(runs, data, pool=pool, progress=progress, trust=trust, **settings)  # type: ignore[arg-type]
    found = drawn.read(data)
    if out.suffix == ".html":
        drawn.page(found).save(out)
        written = [out]
    else:
        first = {c.key.removeprefix("landscape-"): next(iter(c.views.values())) for c in drawn.charts(found)}
        written = [f.save(out.with_name(f"{out.stem}-{name}{out.suffix}")) for name, f in first.items()]
    print(f"{found.explained} of the trajectories")
    print(f"picture  {', '.join(map(str, written))}\ndata     {data}{'' if fresh else ' (as computed before)'}")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    import sys
    import time

    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from offbeat import terminal

    err = terminal.console(stderr=True)
    if not err.is_terminal:
        last = [time.monotonic()]

        def line(done: int, total: int) -> None:
            if time.monotonic() - last[0] >= 5:
                last[0] = time.monotonic()
                print(f"landscape {done / total:4.0%}  {done} of {total} points", file=sys.stderr, flush=True)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("landscape", total=1.0)
        yield lambda done, total: bar.update(task, completed=done / total)
