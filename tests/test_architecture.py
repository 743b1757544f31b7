"""The arrows between the packages, and what no module of ours may use."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import offbeat

ROOT = Path(offbeat.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# Which of our packages a module may import, besides its own.
ALLOWED = {
    "core": set(),
    "optim": {"core"},
    "solvers": {"core", "optim"},
    "data": {"core"},
    "tasks": {"core", "data"},
    "engines": {"core"},
    "folders": {"core"},
    "report": {"core", "folders"},
    "progress": {"core"},
    # Run.report() and .plot are lab's.
    "lab": {"core", "optim", "solvers", "data", "tasks", "engines", "folders", "report", "progress"},
    "terminal": {"core", "lab", "report", "progress"},
    "cli": {"core", "solvers", "data", "tasks", "engines", "folders", "report", "lab", "progress", "terminal"},
    "recipes": set(),
    "__init__": {"core", "optim", "solvers", "data", "tasks", "engines", "folders", "report", "lab"},
    "__main__": {"cli"},
}

# The same among the rooms of `engines`. What all of them share (the protocol, the pool) is no room.
ROOMS = {
    "cluster": set(),
    "running": {"cluster"},
    "sim": {"cluster", "running"},
    "clock": {"cluster", "running", "sim"},
    "replay": {"cluster", "running"},
    "real": {"cluster", "running", "replay"},
    "local": {"cluster", "running", "real"},
    "debug": {"cluster", "running", "real"},
    "ray": {"cluster", "running", "real"},
    "threads": {"cluster", "running"},
}
SHARED = {"protocol", "pool", "__init__"}


def package(path: Path) -> str:
    """The package a file belongs to; its own name at the top level."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else path.stem


def imports(path: Path) -> set[str]:
    """Everything a module imports, at any depth of its code, as dotted names; `from a import b` gives a and a.b."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def below(top: str, names: set[str]) -> set[str]:
    """The modules and packages right below one of ours that are among these names: `from a import b` may be a.b."""
    folder = ROOT.parent.joinpath(*top.split("."))
    depth = len(top.split("."))
    found = {name.split(".")[depth] for name in names if name.startswith(f"{top}.")}
    return {name for name in found if (folder / name).is_dir() or (folder / f"{name}.py").exists()}


def ours(path: Path) -> set[str]:
    """The packages of ours that a module imports. `from offbeat import solvers` counts as solvers."""
    return below("offbeat", imports(path))


def test_there_are_modules_to_look_at():
    assert set(ALLOWED) == {package(f) for f in FILES}, "every package and top-level module has its line"
    assert len(FILES) > 30


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_arrows_point_one_way(path):
    home = package(path)
    beyond = ours(path) - ALLOWED[home] - {home}
    assert not beyond, f"{home} must not import {', '.join(sorted(beyond))}"


ENGINES = [f for f in FILES if package(f) == "engines" and f.relative_to(ROOT / "engines").parts[0] != "__init__.py"]


@pytest.mark.parametrize("path", ENGINES, ids=lambda p: str(p.relative_to(ROOT / "engines")))
def test_engines_know_no_other_engine(path):
    """But for the clock, which is the simulator with its commonest steps written out."""
    inside = path.relative_to(ROOT / "engines")
    home = inside.parts[0].removesuffix(".py")
    known = SHARED if home in SHARED else ROOMS[home] | SHARED | {home}
    beyond = below("offbeat.engines", imports(path)) - known
    assert not beyond, f"engines/{home} must not import {', '.join(sorted(beyond))}"


def test_a_file_s_name_says_what_it_is():
    """One name, one thing. Models are named after their papers, and a command's file after what it commands."""
    files = [f for f in FILES if f.name != "__init__.py" and "models" not in f.parts and package(f) != "cli"]
    twice = {name for name, n in Counter(f.name for f in files).items() if n > 1}
    assert not twice, f"more than one file is called {', '.join(sorted(twice))}"


def test_a_class_s_name_says_what_it_is():
    """One name, one thing: also where nobody would import both."""
    made = [n.name for f in FILES for n in ast.parse(f.read_text(encoding="utf-8")).body if isinstance(n, ast.ClassDef)]
    twice = {name for name, n in Counter(made).items() if n > 1 and not name.startswith("_")}
    assert not twice, f"more than one class is called {', '.join(sorted(twice))}"


@pytest.mark.parametrize("path", [f for f in FILES if package(f) == "report"], ids=lambda p: p.name)
def test_reports_read_files_and_know_neither_torch_nor_engines(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert "torch" not in roots
    assert not ours(path) & {"engines", "solvers", "tasks", "lab"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_nothing_is_pickled(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & {"pickle", "cPickle", "dill", "shelve", "marshal", "joblib"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used = f"{node.value.id}.{node.attr}"
            assert used not in ("torch.load", "torch.save", "np.load", "np.save", "numpy.load"), f"line {node.lineno}"
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            assert not {a.name for a in node.names} & {"load", "save"}


@pytest.mark.parametrize("path", [f for f in FILES if package(f) in ("core", "optim", "solvers")], ids=lambda p: p.name)
def test_rules_see_no_clock_no_threads_and_no_global_randomness(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & {"time", "datetime", "threading", "multiprocessing", "random", "concurrent", "asyncio"}
    text = path.read_text(encoding="utf-8")
    assert "np.random.seed" not in text
    assert "manual_seed" not in text


def test_the_oracles_are_independent():
    for path in (Path(__file__).parent / "oracles").glob("*.py"):
        assert not {n for n in imports(path) if n.split(".")[0] == "offbeat"}, path.name


def test_no_test_imports_a_test():
    """What tests share is a module of its own: a name that does not begin with test_."""
    for path in Path(__file__).parent.glob("*.py"):
        assert not {n for n in imports(path) if n.startswith("test_")}, path.name


def test_help_does_not_wait_for_torch():
    """`import offbeat` alone must not load it."""
    import subprocess
    import sys

    code = "import sys, offbeat; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=200, check=False).returncode == 0
