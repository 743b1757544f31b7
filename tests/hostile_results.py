"""Tables of results, stored validations and folders of reproductions that somebody damaged, or made to do harm."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from hostile import VALUES, Kind, _descriptions, _files, _paths, _put, _tables, bomb
from offbeat.lab.papers import reproducing
from offbeat.lab.papers.recipe import Recipe, parse

STORED = "jain2018-adam"
"""A recipe whose results the package carries."""
CELLS_EVERY = 7
"""So manieth change of a run's folder is made to a cell: reading folders is attacked elsewhere."""
_TINY = """
paper = "nobody2000"
place = "Table 0"
title = "A bowl"
metric = "loss"
label = "loss"
unit = "%"
scale = 1.0
higher = false
chance = 1000.0
differs = ["everything"]

[base]
task = { name = "quadratic", dim = 4, noise = 0.1 }
budget = { updates = 20 }
[base.solver]
name = "asgd"

[axes.workers]
1 = { "cluster.workers" = 1 }
2 = { "cluster.workers" = 2 }
[axes.lr]
"0.1" = { "optimizer.lr" = 0.1 }

[variants.plain]
about = "as it stands"

[sizes.quick]
seeds = 1
[sizes.full]
seeds = 2

[published]
rows = ["workers"]
columns = ["lr"]
values = [[1.0], [2.0]]

[[claims]]
key = "level"
quote = "workers do not matter"
place = "p. 1"
rule = "the mean difference"
statistic = "difference"
of = { workers = "2" }
against = { workers = "1" }
at_most = 1.0
"""


def tiny(name: str) -> Recipe:
    return parse(name, _TINY)


def make_bases(place: Path) -> None:
    """A reproduction, its table, the package's own results, and a validation, all of them whole."""
    (place / "finished").mkdir(parents=True)
    folder = place / "reproductions"
    made = reproducing.plan("tiny", out=folder)
    assert made.run()
    made.report(made.folder / "report.html")
    (place / "results").mkdir()
    made.save(place / "results" / "results.parquet")
    (place / "package" / "results").mkdir(parents=True)
    shutil.copy(str(files("offbeat.recipes").joinpath("results", f"{STORED}.parquet")), place / "package" / "results")
    (place / "validated").mkdir()
    docs = Path(__file__).parent.parent / "docs"
    found = json.loads((docs / "validated.json").read_text(encoding="utf-8"))
    found["rows"], found["left_out"] = found["rows"][:4], {"a case": "a reason"}
    (place / "validated" / "validation.json").write_text(json.dumps(found))


def kinds(place: Path) -> Iterator[Kind]:
    """All of them; `place` has the bases."""
    yield from _tables("results", place / "results", "results.parquet")
    yield from _files("results", place / "results", ("results.parquet",))
    name = f"results/{STORED}.parquet"
    yield from _tables("package", place / "package", name)
    yield from _files("package", place / "package", (name,))
    yield from _validations(place / "validated")
    yield from _reproductions(place / "reproductions")


def _validations(whole: Path) -> Iterator[Kind]:
    found = json.loads((whole / "validation.json").read_text(encoding="utf-8"))

    def change(path: tuple[str, ...], value: Any, remove: bool = False) -> Callable[[Path], object]:
        def make(folder: Path) -> None:
            tree = json.loads((folder / "validation.json").read_text(encoding="utf-8"))
            _put(tree, path, value, remove)
            (folder / "validation.json").write_text(json.dumps(tree).replace("Infinity", "1e400"))

        return make

    for path in _paths(found):
        yield Kind(f"validation without {'.'.join(path)}", "validated", change(path, None, True))
        for name, value in VALUES.items():
            yield Kind(f"validation, {'.'.join(path)} {name}", "validated", change(path, value))
    yield from _files("validated", whole, ("validation.json",))
    for name, text in {"a list": b"[]", "deep": b"[" * 100_000, "no text": b"\xff"}.items():
        yield Kind(f"validation {name}", "validated", lambda f, t=text: (f / "validation.json").write_bytes(t))


def _reproductions(whole: Path) -> Iterator[Kind]:
    cell = sorted((whole / "cells").iterdir())[0]
    for kind in [*_descriptions("finished", cell), *_files("finished", cell)][::CELLS_EVERY]:
        inside = lambda f, c=kind.change: c(f / "cells" / cell.name)  # noqa: E731
        yield replace(kind, name=f"cell: {kind.name}", base="reproductions", change=inside)
    page = "tiny/quick/report.html"
    for what, change in {
        "its page is a link": lambda f: ((f / page).unlink(), (f / page).symlink_to("../../../outside/file")),
        "its page is a pipe": lambda f: ((f / page).unlink(), os.mkfifo(f / page)),
        "its page is a folder": lambda f: ((f / page).unlink(), (f / page).mkdir()),
        "its folder is a link": lambda f: (shutil.rmtree(f / "tiny"), (f / "tiny").symlink_to("../outside")),
        "its size is a link": lambda f: (
            shutil.rmtree(f / "tiny" / "quick"),
            (f / "tiny" / "quick").symlink_to("../../outside"),
        ),
        "its folder is a file": lambda f: (shutil.rmtree(f / "tiny"), (f / "tiny").touch()),
        "its cells are a link": lambda f: (shutil.rmtree(f / "cells"), (f / "cells").symlink_to("../outside")),
        "its cells are a file": lambda f: (shutil.rmtree(f / "cells"), (f / "cells").touch()),
        "a cell is a link": lambda f: (
            shutil.rmtree(f / "cells" / cell.name),
            (f / "cells" / cell.name).symlink_to("../../outside"),
        ),
        "a cell is empty": lambda f: (shutil.rmtree(f / "cells" / cell.name), (f / "cells" / cell.name).mkdir()),
        "a trace is a bomb": lambda f: bomb(f / "cells" / cell.name / "trace.parquet", _schema(f, cell.name)),
    }.items():
        yield Kind(f"reproductions: {what}", "reproductions", change)


def _schema(folder: Path, cell: str) -> Any:
    import pyarrow.parquet as pq

    return pq.read_schema(folder / "cells" / cell / "trace.parquet")


_COLLECT = ("reproduce", "tiny", "--collect")
COMMANDS: dict[str, dict[str, tuple[str, ...]]] = {
    "results": {"add to a table": (*_COLLECT, "--out", "out/none", "--table", "{run}/results.parquet")},
    "package": {
        "claims": ("claims", STORED),
        "claims as JSON": ("claims", STORED, "--json"),
        "the page of claims": ("claims", "--markdown"),
        "the page of reproductions": ("reproduce", "--markdown"),
    },
    "validated": {"the page of a validation": ("validate", "--markdown", "{run}/validation.json")},
    "reproductions": {
        "collect": (*_COLLECT, "--out", "{run}", "--export", "out/export", "--table", "out/table.parquet"),
        "collect as JSON": (*_COLLECT, "--out", "{run}", "--json"),
        "dry run": ("reproduce", "tiny", "--dry-run", "--out", "{run}"),
    },
}
"""By base."""
