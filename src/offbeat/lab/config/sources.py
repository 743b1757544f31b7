"""What code of the user's own is made of: its files, those of every module of theirs that it imports, and so on.

Imports are read off the source, also those inside functions, and nothing is imported for it. Where a package is
installed we stop: its version says what it is.
"""

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import packages_distributions, version
from pathlib import Path
from types import ModuleType

_SITES = {"site-packages", "dist-packages"}


@dataclass(frozen=True)
class Sources:
    """Files of the user's, in the order in which they are met, and the installed packages that they import."""

    files: tuple[Path, ...]
    packages: frozenset[str]

    @property
    def digest(self) -> str:
        """SHA-256 of all files, by content alone: moved code is the same code."""
        found = hashlib.sha256()
        for file in self.files:
            found.update(hashlib.sha256(file.read_bytes()).digest())
        return found.hexdigest()

    @property
    def versions(self) -> dict[str, str]:
        """The version of every installed package, by the name it is installed by."""
        if not self.packages:
            return {}
        known = packages_distributions()
        return {name: version(name) for p in sorted(self.packages) for name in sorted(set(known.get(p, ())))}


def sources(modules: Iterable[ModuleType]) -> Sources:
    """All that these modules are made of; they themselves count wherever they lie, but not if they are ours."""
    files: dict[Path, None] = {}
    packages: set[str] = set()
    unread = [(m.__spec__.name if m.__spec__ else m.__name__, _file(m)) for m in modules]
    while unread:
        name, file = unread.pop(0)
        if file is None or file in files or _ours(name):
            continue
        files[file] = None
        for imported in _imports(file, name):
            spec, top = _spec(imported), imported.partition(".")[0]
            if spec is None or _ours(imported) or _standard(_origin(spec)):
                continue
            if _installed(top):
                packages.add(top)
            else:
                unread.append((imported, _origin(spec)))
    return Sources(tuple(files), frozenset(packages))


def installed(module: ModuleType) -> bool:
    """Whether a module is that of an installed package, or Python's own: its version says what it is."""
    file = _file(module)
    return file is None or _standard(file) or _installed(module.__name__.partition(".")[0])


def _file(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if file and Path(file).is_file() else None


def _ours(name: str) -> bool:
    """Whether a module is offbeat's, whose version is recorded, wherever it lies."""
    return name.partition(".")[0] == "offbeat"


def _imports(file: Path, name: str) -> Iterator[str]:
    """The dotted names that a file may import: of `from a.b import c`, a, a.b and a.b.c, which may be a module."""
    if file.suffix != ".py":
        return
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # a module that was never imported: who needs it will be told
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for full in names:
            parts = full.split(".")
            yield from (".".join(parts[: i + 1]) for i in range(len(parts)))


def _spec(name: str) -> ModuleSpec | None:
    """Where a module is, without importing it or what it lies in."""
    loaded: ModuleSpec | None = getattr(sys.modules.get(name), "__spec__", None)
    if loaded is not None:
        return loaded
    parent, _, _ = name.rpartition(".")
    if not parent:
        return PathFinder.find_spec(name)
    above = _spec(parent)
    if above is None or above.submodule_search_locations is None:
        return None
    return PathFinder.find_spec(name, list(above.submodule_search_locations))


def _origin(spec: ModuleSpec) -> Path | None:
    """A module's file; None for one that is built in, and for a folder without `__init__.py`."""
    return Path(spec.origin) if spec.has_location and spec.origin else None


@cache
def _standard(file: Path | None) -> bool:
    """Whether a file is of Python's own library."""
    paths = sysconfig.get_paths()
    inside = file is not None and any(file.is_relative_to(paths[p]) for p in ("stdlib", "platstdlib"))
    return inside and file is not None and not _SITES & set(file.parts)


def _installed(top: str) -> bool:
    """Whether a top-level module lies where packages are installed, or nowhere: built in."""
    spec = _spec(top)
    if spec is None:
        return False
    file = _origin(spec)
    where = [Path(p) for p in spec.submodule_search_locations or ()] or ([file] if file else [])
    return not where or any(_holds_installed(path.parent) for path in where)


@cache
def _holds_installed(folder: Path) -> bool:
    return folder.name in _SITES or next(folder.glob("*.dist-info"), None) is not None
