"""The loss landscape of a recipe: the held-out loss around the trajectories of its runs, computed, stored and drawn.

A size that has `grid` draws one, of the first seed of the variant that is compared with the paper. It is what `offbeat
landscape` computes of these runs; the package carries it beside the results, so that pages can be drawn without a run.
"""

from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from offbeat.folders.opening import there
from offbeat.folders.parquet import read_numbers
from offbeat.folders.plain_values import read_json
from offbeat.folders.writing import make_folder
from offbeat.lab.papers.recipe import Recipe
from offbeat.lab.runs.folder import Folder
from offbeat.lab.studies.landscape import compute
from offbeat.report.draw.figure import Chart
from offbeat.report.figures.loss_surface import Landscape, charts, read

if TYPE_CHECKING:
    from offbeat.lab.papers.reproducing import Reproduction

_TABLES = ("grid.parquet", "paths.parquet")
_NOTE = "landscape.json"


def landscape_of(made: "Reproduction") -> Path | None:
    """The folder of the landscape, computed if it is not there; None where the size has none, or a run is missing."""
    grid = made.recipe.sizes[made.size].grid if made.size else 0
    runs = _runs(made)
    if not grid or not runs or any(status != "done" for _, status in runs.values()):
        return None
    place = made.folder / "landscape"
    compute([path for path, _ in runs.values()], place, grid=grid, names=list(runs))
    return place


def _runs(made: "Reproduction") -> dict[str, tuple[Path, str]]:
    """The runs of one landscape, by the values in which their cells differ; cells that read one run are one."""
    mine = [p for p in made.placed if p.variant == made.recipe.main and p.seed == 0]
    first = {p.run.folder: p for p in reversed(mine)}
    told = [axis for axis in made.recipe.axes if len({_at(made.recipe, p.point, axis) for p in first.values()}) > 1]
    return {
        ", ".join(f"{axis} {_at(made.recipe, p.point, axis)}" for axis in told) or made.recipe.main: (
            folder,
            str((p.run.outcome or {}).get("status")),
        )
        for folder, p in reversed(first.items())
    }


def _at(recipe: Recipe, point: tuple[str, ...], axis: str) -> str:
    return point[list(recipe.axes).index(axis)]


def keep_landscape(place: Path, path: Path) -> None:
    """Beside the results at `path`; which folders it was computed of stays behind."""
    kept = _beside(path)
    make_folder(kept)
    folder = Folder(kept)
    for name in _TABLES:
        folder.write_table(name, read_numbers(place, name))
    about: Mapping[str, Any] = read_json(place, _NOTE, dict[str, Any])
    folder.write_json(_NOTE, {k: v for k, v in about.items() if k != "runs"})


def stored_landscape(name: str) -> Landscape | None:
    """What the package carries of a recipe; None where it has none."""
    with as_file(files("offbeat.recipes").joinpath("results")) as results:
        kept = _beside(results / f"{name}.parquet")
        return read(kept) if there(kept, _NOTE) else None


def landscape_charts(found: Landscape) -> list[Chart]:
    """Surface and contours, each in the scale that shows more."""
    return [
        Chart.of(c.key.removeprefix("landscape-"), next(iter(c.views.values())), c.caption, wide=True)
        for c in charts(found)
    ]


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.stem}-landscape")
