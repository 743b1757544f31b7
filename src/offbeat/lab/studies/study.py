"""What sweeps and comparisons share: their runs, side by side in processes, and what came of them."""

import hashlib
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from offbeat.core.errors import OffbeatError, OffbeatWarning, StoreError
from offbeat.folders.made import RESULTS, tidy_results
from offbeat.folders.opening import refuse_link
from offbeat.folders.writing import make_way
from offbeat.lab.runs.folder import Folder, metrics_table
from offbeat.lab.runs.holding import Hold
from offbeat.lab.runs.result import Run
from offbeat.lab.studies.cells import Cell, run_cells
from offbeat.lab.studies.places import Where
from offbeat.progress import cells_progress, watched

if TYPE_CHECKING:
    from offbeat.lab.studies.dry_run import DryRun
    from offbeat.report.pages.page import Page

FINISHED = ("done", "diverged")
HERE = Where()


@dataclass(frozen=True)
class Study:
    """Many runs of one question."""

    cells: Sequence[Cell]
    keys: Sequence[str]
    """The settings in which they differ, besides the seed."""
    folder: Path

    # -- running it -----------------------------------------------------------------------------------------------

    def collect(self) -> int:
        """Takes the outcomes of cells that are finished already; how many there were."""
        done = 0
        for cell in self.cells:
            folder = Folder(cell.folder)
            if cell.address is None or not folder.exists():
                continue
            try:
                info = folder.read()
            except StoreError:
                continue  # damaged: it is run again
            # A run of another configuration is no outcome of this cell; running the cell will say so.
            if info.status in FINISHED and info.key == cell.address:
                cell.outcome, cell.share = {**info.outcome, "run": str(cell.folder)}, 1.0
                cell.found = info.ended or ""
                done += 1
        return done

    def said_shown(self, anew: str) -> str:
        """How many runs are shown and not run, in one line, and how to run them anew; nothing where there are none."""
        found = [c.found for c in self.cells if c.found is not None]
        if not found:
            return ""
        when = f", the last of {max(found)[:16].replace('T', ' ')} UTC" if max(found) else ""
        return (
            f"shown, not run: {len(found)} of {len(self.cells)} runs in {self.folder}{when}; run all anew with {anew}"
        )

    def run(self, where: Where = HERE, *, again: bool = False, on_change: Callable[[], None] = lambda: None) -> bool:
        """Runs what is not done and writes results.parquet; False when interrupted."""
        where.side_by_side(self.cells)
        try:  # before anything is computed: a folder that cannot be written is bad input, not a failure of every cell
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise StoreError(f"cannot write to {self.folder}: {e.strerror}") from None
        with Hold(self.folder):
            finished = self._run_cells(where, again, on_change)
            self._write()
        return finished

    def _run_cells(self, where: Where, again: bool, on_change: Callable[[], None]) -> bool:
        if all(c.outcome is not None for c in self.cells):
            return True
        place = where.open(self.cells)
        try:
            return run_cells(self.cells, place, again=again, on_change=on_change)
        finally:
            place.close()

    def run_in_python(self, label: str, where: Where, again: bool, progress: bool | None) -> None:
        """The same for a caller in Python: shown where somebody looks on, raised where it went wrong."""
        where.side_by_side(self.cells)
        if not again and self.collect():
            print(self.said_shown("again=True"), file=sys.stderr)
        quiet = not (watched() if progress is None else progress)
        with cells_progress(label, self.cells, quiet=quiet) as changed:
            finished = self.run(where, again=again, on_change=changed)
        if not finished:
            raise KeyboardInterrupt(f"interrupted; {self.folder} is saved, and the same call goes on")
        if failures := self.failures:
            if len(failures) == len(self.cells):
                raise OffbeatError(failures[0])
            for failure in failures:
                warnings.warn(f"failed: {failure}", OffbeatWarning, stacklevel=3)

    def would_run(self, where: Where = HERE) -> "DryRun":
        """What would run and what it would take; nothing is run or written."""
        from offbeat.lab.studies.estimate import estimate_study

        return estimate_study(self, self.collect(), where.side_by_side(self.cells))

    def _write(self) -> None:
        table = self.rows()
        for key in self.keys:  # a key with values of several kinds becomes text
            if len({type(row[key]) for row in table if row[key] is not None}) > 1:
                for row in table:
                    row[key] = None if row[key] is None else str(row[key])
        tidy_results(self.folder)
        Folder(self.folder).write_table(RESULTS, metrics_table(table))

    # -- what came of it ------------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """One row a cell: its keys, its seed, its outcome. Failed cells are rows too."""
        out = []
        for cell in self.cells:
            outcome = cell.outcome or {"status": "not run"}
            flat = {k: v for k, v in outcome.items() if not isinstance(v, list | dict)}
            out.append({**{k: cell.keys.get(k) for k in [*self.keys, "seed"]}, **flat, "folder": str(cell.folder)})
        return out

    @property
    def failures(self) -> list[str]:
        """What failed, and why: a line each."""
        bad = [row for row in self.rows() if row["status"] == "failed"]
        return [f"{', '.join(f'{k}={row[k]}' for k in [*self.keys, 'seed'])}: {row.get('why')}" for row in bad]

    @property
    def table(self) -> pa.Table:
        """One row a run: its settings, its seed, its outcome."""
        return metrics_table(self.rows())

    @property
    def runs(self) -> list[Run]:
        """Every run that came to an end."""
        return [Run.load(c.folder, task=c.objects.task) for c in self.cells if ended(c)]

    def own_file(self, name: str) -> Path:
        """Where a page or a picture of its own goes; neither its folder nor the file is a link to elsewhere."""
        refuse_link(self.folder)
        make_way(self.folder / name)
        return self.folder / name

    def report(self, path: str | Path | None = None, **options: Any) -> "Page":
        """The page about all runs, written to `path` if one is given; options are those of `offbeat.report`."""
        from offbeat.report.pages.build import report

        return report([self.folder], path, **options)


def ended(cell: Cell) -> bool:
    """Whether it came to an end, good or bad."""
    return cell.outcome is not None and cell.outcome["status"] in FINISHED


def placed(cells: Sequence[Cell], out: str | Path | None, parent: str) -> Path:
    """The folder of a study, and in it those of its cells."""
    folder = Path(out) if out is not None else _default_folder(cells, parent)
    for cell in cells:
        cell.folder = folder / cell.folder
    return folder


def _default_folder(cells: Sequence[Cell], parent: str) -> Path:
    """The same runs go to the same place, and those that nobody can know again to a new one."""
    told = [[c.keys, c.address or c.config] for c in cells]
    stem = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:12]
    if all(c.address is not None for c in cells):
        return Path(parent) / stem
    number = 1
    while (Path(parent) / f"{stem}-{number}").exists():
        number += 1
    return Path(parent) / f"{stem}-{number}"
