"""Code of the user's own, named as `package.module:name`."""

import sys
from types import ModuleType
from typing import Any

from offbeat.solvers import load_object


def load_code(path: str, what: str) -> Any:
    """The object of that name, imported."""
    return load_object(path, what)


def modules_of(*code: Any) -> list[ModuleType]:
    """The modules in which functions and classes are written."""
    found = (sys.modules.get(getattr(getattr(c, "func", c), "__module__", None) or "") for c in code)
    return [m for m in found if m is not None]
