"""The arrows between the packages, and what no module of ours may use."""

import ast
from pathlib import Path

import pytest

import offbeat

ROOT = Path(offbeat.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# Which of our packages a module may import, besides its own.
ALLOWED = {
    "core": set(),
    "solvers": {"core"},
    "tasks": {"core"},
    "engines": {"core"},
    "lab": {"core", "solvers", "tasks", "engines", "report"},
    "report": {"core"},
    "recipes": set(),
}


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


def ours(path: Path) -> set[str]:
    """The packages of ours that a module imports. `from offbeat import solvers` counts as solvers."""
    found = set()
    for name in imports(path):
        parts = name.split(".")
        if (
            parts[0] == "offbeat"
            and len(parts) > 1
            and ((ROOT / parts[1]).is_dir() or (ROOT / f"{parts[1]}.py").exists())
        ):
            found.add(parts[1])
    return found


def test_there_are_modules_to_look_at():
    found = {package(f) for f in FILES}
    assert set(ALLOWED) - {"recipes", "report"} <= found
    assert len(FILES) > 30


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_the_arrows_point_one_way(path):
    home = package(path)
    if home not in ALLOWED:
        return  # the top level: cli and what it shows
    beyond = ours(path) - ALLOWED[home] - {home}
    assert not beyond, f"{home} must not import {', '.join(sorted(beyond))}"


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


@pytest.mark.parametrize("path", [f for f in FILES if package(f) in ("core", "solvers")], ids=lambda p: p.name)
def test_rules_see_no_clock_no_threads_and_no_global_randomness(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & {"time", "datetime", "threading", "multiprocessing", "random", "concurrent", "asyncio"}
    text = path.read_text(encoding="utf-8")
    assert "np.random.seed" not in text
    assert "manual_seed" not in text


def test_the_oracles_are_independent():
    for path in (Path(__file__).parent / "oracles").glob("*.py"):
        assert not {n for n in imports(path) if n.split(".")[0] == "offbeat"}, path.name


def test_help_does_not_wait_for_torch():
    """`import offbeat` alone must not load it."""
    import subprocess
    import sys

    code = "import sys, offbeat; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=200, check=False).returncode == 0
