"""A comparison from its settings to its verdict, table, picture and page: what `compare` and `demo` share."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from offbeat.cli.options import side_by_side
from offbeat.cli.output import json_safe, print_estimate
from offbeat.core.errors import OffbeatError
from offbeat.core.interruption import exit_code
from offbeat.lab.engines import entry

if TYPE_CHECKING:
    from offbeat.core.budget import Target
    from offbeat.lab.studies.cells import Cell
    from offbeat.lab.studies.sweep import Sweep
    from offbeat.report.pages.page import Page


def run_comparison(
    values: dict[str, Any],
    solvers: Sequence[str],
    seeds: Sequence[int],
    target: str | None,
    out: Path | None,
    processes: int | None,
    as_json: bool,
    own: Mapping[str, Mapping[str, Any]],
    *,
    dry_run: bool = False,
) -> None:
    """Runs what is not done; prints the verdict and the table; leaves a picture and a page beside the runs."""
    import hashlib

    from offbeat import terminal
    from offbeat.core.budget import Target
    from offbeat.lab.studies.cells import run_cells
    from offbeat.lab.studies.compare import fairness, plan_comparison, summarise
    from offbeat.lab.studies.sweep import collect_done, make_folder, rows, write_results

    goal = None if target is None else Target.parse(target)
    key = hashlib.sha256(json.dumps([values, solvers, seeds, own], sort_keys=True).encode()).hexdigest()[:12]
    folder = out or Path("comparisons") / key
    sweep = plan_comparison(values, solvers, seeds, folder, own)
    if any(entry(c.config["engine"]).real for c in sweep.cells):
        processes = 1  # each run has the machine to itself, or its times would mean nothing
    done = collect_done(sweep)
    if dry_run:
        from offbeat.lab.studies.estimate import estimate_sweep

        print_estimate(estimate_sweep(sweep, done, side_by_side(processes)), as_json)
        return
    make_folder(sweep)
    without = not_drawn()
    if without:
        print(without, file=sys.stderr)
    with terminal.cells_progress("comparing", sweep.cells, quiet=as_json) as changed:
        finished = run_cells(sweep.cells, side_by_side(processes), on_change=changed)
    write_results(sweep)
    if as_json:
        print(json.dumps(json_safe(rows(sweep))))
    if not finished:
        if not as_json:
            terminal.show_comparison(terminal.console(), summarise(sweep, goal), target)
        print("interrupted; the same command goes on", file=sys.stderr)
        raise typer.Exit(exit_code())
    page = _page(sweep, target)
    if not as_json:
        terminal.show_verdict(terminal.console(), [*(page.verdict if page else ()), *fairness(sweep)])
        terminal.show_comparison(terminal.console(), summarise(sweep, goal), target)
    written = _write(sweep, page, goal) if page and not without else {}
    shown = "\n".join(f"{name:8} {path}" for name, path in {**written, "runs": folder}.items())
    print(f"\n{shown}", file=sys.stderr if as_json else sys.stdout)
    for cell in sweep.cells:
        if cell.outcome is not None and cell.outcome["status"] == "failed":
            raise OffbeatError(f"{cell.keys['solver']}, seed {cell.keys['seed']}: {cell.outcome['why']}")


def not_drawn() -> str:
    """Why there will be no pictures: said before the first run, not after the last."""
    from importlib import import_module

    missing = []
    for name in ("matplotlib", "plotly"):
        try:
            import_module(name)
        except ImportError:
            missing.append(name)
    if not missing:
        return ""
    return f"without picture and page: {' and '.join(missing)} missing (pip install 'offbeat[figures]')"


def _page(sweep: "Sweep", target: str | None) -> "Page | None":
    """The page about all runs that left a folder, in the order of the comparison; None where none came to an end."""
    from offbeat.folders.run_files import RunFiles
    from offbeat.report.pages.build import build

    if not any(_ended(c) for c in sweep.cells):
        return None
    return build([RunFiles.open(c.folder) for c in sweep.cells if (c.folder / "run.json").exists()], target=target)


def _write(sweep: "Sweep", page: "Page", goal: "Target | None") -> dict[str, Path]:
    """The picture, of the runs that came to an end, and the page."""
    from offbeat.folders.run_files import RunFiles
    from offbeat.report.figures import comparison

    runs: dict[str, list[RunFiles]] = {}
    for cell in sweep.cells:
        if _ended(cell):
            runs.setdefault(str(cell.keys["solver"]), []).append(RunFiles.open(cell.folder))
    said = page.verdict[0] if page.verdict else ""
    picture = comparison.draw(runs, sweep.folder / "comparison.png", said=said, target=goal)
    return {"picture": picture, "page": page.save(sweep.folder / "report.html")}


def _ended(cell: "Cell") -> bool:
    return cell.outcome is not None and cell.outcome["status"] in ("done", "diverged")
