"""Code of the user's own, named as `package.module:name`."""

import os
import sys
from types import ModuleType
from typing import Any

from offbeat.solvers import load_object


def load_code(path: str, what: str) -> Any:
    """The object of that name, imported."""
    return load_object(path, what)


def typed_in(code: Any) -> bool:
    """Whether it was written in a notebook or a shell, where no file says what it is."""
    name = getattr(getattr(code, "func", code), "__module__", None)
    return name == "__main__" and not os.path.isfile(getattr(sys.modules["__main__"], "__file__", None) or "")


def modules_of(*code: Any) -> list[ModuleType]:
    """The modules in which functions and classes are written."""
    found = (sys.modules.get(getattr(getattr(c, "func", c), "__module__", None) or "") for c in code)
    return [m for m in found if m is not None]
