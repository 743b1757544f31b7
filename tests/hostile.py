"""Folders that somebody damaged, or made to do harm: hundreds of kinds, each a small change to a run that is whole.

`python tests/hostile.py` tries all of them with all commands and prints what it found.
"""

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors import safe_open
from safetensors.torch import save_file

ESCAPES = "\x1b]0;owned\x07\x1b[31m[/red][bold]<b>&=cmd|' /C calc'!A0\u202e\n"
VALUES: dict[str, Any] = {
    "null": None,
    "negative": -1,
    "huge": 2**62,
    "beyond": 2**70,
    "infinite": 1e400,
    "not a number": float("nan"),
    "large": 1e300,
    "text": ESCAPES,
    "formula": "=HYPERLINK(1)",
    "surrogate": "\ud800",
    "long": "x" * 200_000,
    "list": [],
    "nested": [[[{"a": [1]}]]],
    "object": {},
    "true": True,
}
RUN = "the run"


@dataclass(frozen=True)
class Kind:
    """A change to a folder; `base` names the run that it is a change of."""

    name: str
    base: str
    change: Callable[[Path], object]
    folder: str = RUN
    """What the folder is called."""


def make_bases(place: Path) -> None:
    """Small runs that are whole: finished, with a record of arrivals as a real one, one that goes on, and a sweep."""
    import offbeat
    from offbeat.lab.runs.folder import Folder, arrivals_table

    words = {"budget": "60updates", "batch": 2}
    run = offbeat.train("quadratic", "asgd", 3, out=place / "finished", **words)
    for k in range(4):
        shift = torch.randn(len(run.params), generator=torch.Generator().manual_seed(k))
        note = {"offbeat": json.dumps({"samples": 10 * k, "time": 1.0, "updates": k})}
        (place / "finished" / "saves").mkdir(exist_ok=True)
        save_file({"x": run.params + shift}, place / "finished" / "saves" / f"{k:06d}.safetensors", metadata=note)
    (place / "finished" / "tags.json").write_text('["good"]')
    scores = {"classes": ["a", "b"], "samples": 4, "accuracy": 0.5, "confusion": [[1, 1], [1, 1]], "support": [2, 2]}
    scores |= {k: [0.5, 0.5] for k in ("precision", "recall", "f1")}
    scores |= {f"mean_{k}": 0.5 for k in ("precision", "recall", "f1")}
    (place / "finished" / "evaluation.json").write_text(json.dumps({"test": scores}))
    partition = {"workers": 3, "samples": 9, "sizes": [3, 3, 3], "labels": [0, 1], "histograms": [[1, 2]] * 3}
    (place / "finished" / "partition.json").write_text(json.dumps({**partition, "names": ["a", "b"]}))
    (place / "finished" / "vocabulary.txt").write_text("the 3\nsea 2\n")
    shutil.copytree(place / "finished", place / "real")
    edit(place / "real", lambda info: info.update(clock="wall", engine="local"))
    edit(place / "real", lambda info: info["summary"].update(virtual_seconds=None))
    rows = run.trace.to_pylist()
    calls = [(0.0, "begin", i, 0) for i in range(3)]
    calls += [(r["computed"], "call", r["worker"], 0) for r in rows if r["applied"]]
    Folder(place / "real").write_table("arrivals.parquet", arrivals_table(calls))
    _unfinished(place / "unfinished", words)
    _sweep(place / "sweep", place / "finished")


def _sweep(path: Path, whole: Path) -> None:
    """Four runs of a grid, and their table."""
    from offbeat.folders.run_files import RunFiles
    from offbeat.lab.studies.cells import Cell
    from offbeat.lab.studies.study import Study

    cells = []
    for k, (lr, dim) in enumerate((lr, dim) for lr in (0.01, 0.02) for dim in (10, 20)):
        folder = path / "cells" / f"{k}"
        shutil.copytree(whole, folder)
        edit(
            folder,
            lambda info, lr=lr, dim=dim: (
                info["config"]["optimizer"].update(lr=lr),
                info["config"]["task"].update(dim=dim),
            ),
        )
        keys = {"optimizer.lr": lr, "task.dim": dim, "seed": 0}
        cells.append(Cell({"engine": "sim"}, folder, keys, outcome=RunFiles.open(folder).summary))
    Study(cells, ["optimizer.lr", "task.dim"], path).run()


def _unfinished(path: Path, words: dict[str, Any]) -> None:
    from offbeat.core.budget import Budget
    from offbeat.lab.config import make, say
    from offbeat.lab.runs.execute import execute
    from offbeat.lab.runs.plan import build

    values: dict[str, Any] = {"task": {"name": "quadratic"}}
    say(values, {"solver": "asgd", "workers": 3, "budget": Budget.parse(words["budget"]), "batch": words["batch"]})

    class Stops:
        def __init__(self) -> None:
            self.rows = 0

        def on_apply(self, row: Any) -> None:
            self.rows += 1
            if self.rows == 30:
                raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        execute(build(make(values)), path, pool=0, callbacks=[Stops()], checkpoint_seconds=0.0)


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    info = json.loads((folder / "run.json").read_text())
    change(info)
    (folder / "run.json").write_text(json.dumps(info).replace("Infinity", "1e400"))


def kinds(place: Path) -> Iterator[Kind]:
    """All of them; `place` has the bases."""
    for base in ("finished", "unfinished", "real"):
        yield from _descriptions(base, place / base)
    for base in ("finished", "unfinished", "real"):
        yield from _files(base, place / base)
    for name in ("trace.parquet", "metrics.parquet"):
        yield from _tables("finished", place / "finished", name)
    for name in ("trace.parquet", "arrivals.parquet"):
        yield from _tables("real", place / "real", name)
    yield from _tables("sweep", place / "sweep", "results.parquet")
    yield from _files("sweep", place / "sweep", ("results.parquet", "lock", "cells/0/run.json"))
    yield from _parts("unfinished")
    yield from _notes()
    yield from _tensors()
    yield from _checkpoints(place / "unfinished" / "checkpoint.safetensors")
    yield from _code()
    for name in (ESCAPES.replace("/", "|"), "\udcff\udcfe", "[/red]", "-rf", "a" * 250, "=1+1", "<script>"):
        yield Kind(f"a folder called {name[:20]!r}", "finished", lambda folder: None, name)


def _descriptions(base: str, whole: Path) -> Iterator[Kind]:
    """Every field of run.json gets a wrong value, and goes missing."""
    info = json.loads((whole / "run.json").read_text())
    wrong = VALUES if base == "finished" else dict(list(VALUES.items())[:4])
    for path in _paths(info):
        yield Kind(
            f"run.json without {'.'.join(path)}", base, lambda f, p=path: edit(f, lambda i: _put(i, p, None, True))
        )
        for name, value in wrong.items():
            yield Kind(
                f"run.json, {'.'.join(path)} {name}",
                base,
                lambda f, p=path, v=value: edit(f, lambda i: _put(i, p, v)),
            )
    for name, text in {
        "empty": b"",
        "no JSON": b"{",
        "no text": b"\xff\xfe\x00",
        "a list": b"[]",
        "deep": b"[" * 100_000,
        "deep enough": b'{"format": 1, "config": ' + b'{"a":' * 40 + b"1" + b"}" * 42,
        "many": b'{"format":1,"config":{"a":[' + b"{}," * 9_000_000 + b"1]}}",
        "digits": b'{"format": ' + b"1" * 5000 + b"}",
        "twice": b'{"format": 1, "format": 2, "config": {}, "status": "done"}',
    }.items():
        yield Kind(f"run.json {name}", base, lambda f, t=text: (f / "run.json").write_bytes(t))


def _paths(node: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield (*map(str, before), str(key))
            yield from _paths(value, (*before, key))
    elif isinstance(node, list) and node and isinstance(node[0], dict):
        yield from _paths(node[0], (*before, "0"))


def _put(node: Any, path: tuple[str, ...], value: Any, remove: bool = False) -> None:
    *above, last = path
    for key in above:
        node = node[int(key)] if isinstance(node, list) else node[key]
    if remove:
        del node[last]
    elif isinstance(node, list):
        node[int(last)] = value
    else:
        node[last] = value


def _files(base: str, whole: Path, only: tuple[str, ...] = ()) -> Iterator[Kind]:
    """Every file of a folder (or only these) as something else than it should be."""
    for name in only or sorted(str(p.relative_to(whole)) for p in whole.rglob("*") if p.is_file()):
        for what, change in {
            "empty": lambda p: p.write_bytes(b""),
            "noise": lambda p: p.write_bytes(bytes(range(256)) * 20),
            "cut": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
            "with a flipped byte": _flip,
            "gone": lambda p: p.unlink(),
            "a pipe": lambda p: (p.unlink(), os.mkfifo(p)),
            "a folder": lambda p: (p.unlink(), p.mkdir()),
            "a socket": _socket,
            "a link out": lambda p: (
                p.unlink(),
                p.symlink_to(p.parents[p.parts[::-1].index(RUN)] / "outside" / "file"),
            ),
            "a link to itself": lambda p: (p.unlink(), p.symlink_to(p)),
            "another name of a file outside": lambda p: (p.unlink(), os.link(_outside(p) / "file", p)),
            "enormous": lambda p: os.truncate(p, 2**40),
        }.items():
            yield Kind(f"{base}: {name} {what}", base, lambda f, n=name, c=change: c(f / n))
    if only:
        return
    for name in ("saves", "parts"):
        yield Kind(f"{base}: {name} is a link", base, lambda f, n=name: _linked(f, n))
        yield Kind(f"{base}: {name} is a file", base, lambda f, n=name: (shutil.rmtree(f / n, True), (f / n).touch()))
    for name in ("lock", "tags.json", "checkpoint.safetensors", ".run.json.1.tmp"):
        yield Kind(f"{base}: {name} is a pipe", base, lambda f, n=name: ((f / n).unlink(True), os.mkfifo(f / n)))
        yield Kind(
            f"{base}: {name} is a link",
            base,
            lambda f, n=name: ((f / n).unlink(True), (f / n).symlink_to("../outside/file")),
        )


def _outside(path: Path) -> Path:
    return next(p for p in path.parents if (p / "outside").is_dir()) / "outside"


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[len(data) // 3] ^= 0xFF
    path.write_bytes(data)


def _socket(path: Path) -> None:
    path.unlink()
    here = os.getcwd()
    os.chdir(path.parent)  # its name may have at most a hundred letters
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def _linked(folder: Path, name: str) -> None:
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).symlink_to("../outside", target_is_directory=True)


def _tables(base: str, whole: Path, name: str) -> Iterator[Kind]:
    table = pq.read_table(whole / name)
    rows = table.num_rows

    def change(made: Callable[[], pa.Table]) -> Callable[[Path], object]:
        return lambda f: pq.write_table(made(), f / name)

    columns = {
        "null": lambda kind: pa.nulls(rows, kind),
        "untyped": lambda kind: pa.nulls(rows),
        "texts": lambda kind: pa.array([ESCAPES] * rows),
        "negative": lambda kind: pa.array([-5] * rows),
        "huge": lambda kind: pa.array([2**31 - 1] * rows),
        "enormous": lambda kind: pa.array([2**62] * rows),
        "infinite": lambda kind: pa.array([np.inf] * rows),
        "not a number": lambda kind: pa.array([np.nan] * rows),
        "large": lambda kind: pa.array([1e300] * rows),
        "lists": lambda kind: pa.array([[1]] * rows),
        "times": lambda kind: pa.array([0] * rows, pa.timestamp("ns")),
        "bytes": lambda kind: pa.array([b"\xff"] * rows),
    }
    for i, column in enumerate(table.column_names):
        yield Kind(f"{base}: {name} without {column}", base, change(lambda i=i: table.remove_column(i)))
        for what, build in columns.items():
            yield Kind(
                f"{base}: {name}, {column} {what}",
                base,
                change(lambda i=i, c=column, b=build: table.set_column(i, c, b(table.schema.field(i).type))),
            )
    odd = pa.table([pa.array([1] * rows)] * 2, names=["time", "time"])
    yield Kind(f"{base}: {name} with one name twice", base, change(lambda: odd))
    yield Kind(f"{base}: {name} with an odd name", base, change(lambda: table.append_column(ESCAPES, table.column(0))))
    yield Kind(f"{base}: {name} without rows", base, change(lambda: table.slice(0, 0)))
    yield Kind(f"{base}: {name} with one row", base, change(lambda: table.slice(0, 1)))
    yield Kind(f"{base}: {name} without columns", base, change(lambda: pa.table({})))
    many = {f"c{k}": [1.0] for k in range(3000)}
    yield Kind(f"{base}: {name} of many columns", base, change(lambda: pa.table(many)))
    yield Kind(f"{base}: {name} is a bomb", base, lambda f: bomb(f / name, table.schema))


def bomb(path: Path, schema: pa.Schema, rows: int = 50_000_000) -> None:
    """Some kilobytes that claim to be fifty million rows, and are."""
    zeros = {"string": "applied", "bool": True, "null": None}
    chunk = pa.table(
        [pa.array([zeros.get(str(f.type), 0)], f.type).take([0] * 1_000_000) for f in schema], schema=schema
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for _ in range(rows // 1_000_000):
            writer.write_table(chunk, row_group_size=1_000_000)


def _parts(base: str) -> Iterator[Kind]:
    def numbered(folder: Path) -> None:
        (folder / "parts").mkdir(exist_ok=True)
        (folder / "parts" / ("trace-" + "9" * 100 + ".parquet")).write_bytes(b"")

    yield Kind("a part of an absurd number", base, numbered)


def _notes() -> Iterator[Kind]:
    """The smaller JSON files, of wrong kinds."""
    good = {"test": {"confusion": [[1]], "classes": ["a"]}}
    for name in ("tags.json", "evaluation.json", "partition.json"):
        for what, value in {
            **VALUES,
            "scores": good,
            "numbers": [1, 2],
            "names": {"histograms": [[1], [1, 2]]},
        }.items():
            yield Kind(f"{name} {what}", "finished", lambda f, n=name, v=value: (f / n).write_text(json.dumps(v)))
    yield Kind("tags of escapes", "finished", lambda f: (f / "tags.json").write_text(json.dumps([ESCAPES[:90]])))
    yield Kind("many tags", "finished", lambda f: (f / "tags.json").write_text(json.dumps(["a"] * 100_000)))
    yield Kind("odd words", "finished", lambda f: (f / "vocabulary.txt").write_text(f"{ESCAPES} 3\nsea 2\n"))


def _tensors() -> Iterator[Kind]:
    x = torch.zeros(10)
    notes = {"no note": None, "a list": "[]", "no JSON": "{", "deep": "[" * 100_000, "odd": '{"segments": [1]}'}
    notes |= {
        "escapes": json.dumps({"segments": [ESCAPES]}),
        "none": '{"segments": []}',
        "other": '{"segments": ["y"]}',
    }
    for name in ("weights.safetensors", "best.safetensors", "saves/000001.safetensors"):
        for what, note in notes.items():
            meta = None if note is None else {"offbeat": note}
            yield Kind(f"{name}, note {what}", "real", lambda f, n=name, m=meta: save_file({"x": x}, f / n, metadata=m))
    for what, tensors in {
        "of whole numbers": {"param.x": torch.arange(10)},
        "of another size": {"param.x": torch.zeros(3)},
        "not finite": {"param.x": torch.full((10,), torch.nan)},
        "none": {},
    }.items():
        meta = {"offbeat": '{"segments": ["x"]}'}
        yield Kind(
            f"weights {what}", "real", lambda f, t=tensors, m=meta: save_file(t, f / "weights.safetensors", metadata=m)
        )
    trees: dict[str, Any] = {
        "empty": {},
        "other": {"watch": 3, "engine": []},
        "odd": {"watch": {"metrics": []}, "engine": {}},
    }
    for what, tree in trees.items():
        meta = {"offbeat": json.dumps(tree)}
        yield Kind(
            f"checkpoint {what}",
            "unfinished",
            lambda f, m=meta: save_file({"x": x}, f / "checkpoint.safetensors", metadata=m),
        )


def _checkpoints(whole: Path) -> Iterator[Kind]:
    """Every place in the tree of a checkpoint gets a value of another kind, and every tensor another form."""
    with safe_open(whole, framework="pt") as file:
        tensors, note = {k: file.get_tensor(k) for k in file.keys()}, json.loads(file.metadata()["offbeat"])  # noqa: SIM118

    def change(kept: dict[str, Any], tree: Any) -> Callable[[Path], object]:
        meta = {"offbeat": json.dumps(tree).replace("Infinity", "1e400")}
        return lambda f: save_file(kept, f / "checkpoint.safetensors", metadata=meta)

    for path in _places(note):
        for name in ("null", "negative", "huge", "infinite", "nested"):
            tree = json.loads(json.dumps(note))
            _put(tree, tuple(map(str, path)), VALUES[name])
            yield Kind(f"checkpoint, {'.'.join(map(str, path))} {name}", "unfinished", change(tensors, tree))
    forms = {"short": lambda t: t.flatten()[:-1].clone(), "of whole numbers": lambda t: t.to(torch.int64)}
    forms |= {"long": lambda t: torch.cat([t.flatten(), t.flatten()]), "of another precision": lambda t: t.double()}
    for name, tensor in tensors.items():
        for what, form in forms.items():
            yield Kind(f"checkpoint, {name} {what}", "unfinished", change({**tensors, name: form(tensor)}, note))
        others = {k: t for k, t in tensors.items() if k != name}
        yield Kind(f"checkpoint without {name}", "unfinished", change(others, note))


def _places(node: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree; of a long list, the first and the last."""
    if isinstance(node, list) and len(node) > 8:
        children: list[Any] = [(0, node[0]), (len(node) - 1, node[-1])]
    else:
        children = list(node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ())
    for key, value in children:
        yield (*before, key)
        yield from _places(value, (*before, key))


def _code() -> Iterator[Kind]:
    """Configurations that name code."""
    task = {"name": "os:system", "command": "touch EXECUTED"}
    for base in ("finished", "unfinished", "real"):
        for what, change in {
            "task": lambda c: c.update(task=task),
            "task from Python": lambda c: c.update(task=task, **{"from": "python"}),
            "solver": lambda c: c.update(solver={"name": "hostile_code:Solver"}),
            "module": lambda c: c.update(task={"name": "hostile_code:task"}),
            "model": lambda c: c.update(task={"name": "digits", "model": "hostile_code:task"}),
            "optimizer": lambda c: c.update(optimizer={"name": "hostile_code:task", "lr": 0.1}),
            "a cluster": lambda c: c.update(engine="ray", ray={"address": "127.0.0.1:9"}),
        }.items():
            yield Kind(f"{base}: code as {what}", base, lambda f, c=change: edit(f, lambda i: c(i["config"])))
        yield Kind(
            f"{base}: code with a signature",
            base,
            lambda f: edit(f, lambda i: (i["config"].update(task=task), i.update(signature="0" * 64))),
        )


COMMANDS: dict[str, tuple[str, ...]] = {
    "show": ("show", "{run}"),
    "show as TOML": ("show", "{run}", "--toml"),
    "show as JSON": ("show", "{run}", "--json"),
    "list": ("runs", "list", "{run}"),
    "list all": ("runs", "list", ".", "--json"),
    "report": ("report", "{run}", "-o", "out/page.html"),
    "diff": ("diff", "{run}", "whole"),
    "export tables": ("export", "tables", "{run}", "-o", "out/tables"),
    "export perfetto": ("export", "perfetto", "{run}", "-o", "out/trace.json"),
    "export tensorboard": ("export", "tensorboard", "{run}", "-o", "out/board"),
    "resume": ("resume", "{run}", "--json"),
    "replay": ("replay", "{run}"),
    "calibrate": ("calibrate", "{run}", "--out", "out/cluster.toml"),
    "landscape": ("landscape", "{run}", "-o", "out/land.html", "--grid", "3", "--pool", "1"),
    "embed": ("embed", "neighbours", "{run}", "the"),
    "tag": ("runs", "tag", "{run}", "--add", "seen"),
    "remove": ("runs", "remove", "{run}", "--yes"),
}


if __name__ == "__main__":
    from attacks import main

    sys.exit(main())
