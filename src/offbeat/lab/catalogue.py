"""What there is, in rows."""

from typing import Any

from offbeat.solvers import SOLVERS, hyper_parameters, solver_class
from offbeat.tasks import TASKS


def catalogue(what: str) -> list[dict[str, Any]]:
    """Rows for `offbeat list`."""
    return {"solvers": _solvers, "tasks": _tasks, "models": _models, "recipes": _recipes}[what]()


def _solvers() -> list[dict[str, Any]]:
    rows = []
    for name in SOLVERS:
        kind = solver_class(name)
        options = ", ".join(f"{k}={v}" for k, v in hyper_parameters(kind).items()) or "-"
        rows.append({"name": name, "what": kind.line, "options": options, "paper": kind.paper, "engines": "sim"})
    return rows


def _tasks() -> list[dict[str, Any]]:
    return [{"name": name, "what": entry.line} for name, entry in TASKS.items()]


def _models() -> list[dict[str, Any]]:
    from offbeat.tasks.models import MODELS

    return [
        {"name": name, "parameters": f"{sum(p.numel() for p in make().parameters()):,}", "what": _first_line(make)}
        for name, make in MODELS.items()
    ]


def _recipes() -> list[dict[str, Any]]:
    from importlib.resources import files

    found = (f for f in files("offbeat.recipes").iterdir() if f.name.endswith(".toml"))
    return [{"name": f.name.removesuffix(".toml")} for f in sorted(found, key=lambda f: f.name)]


def _first_line(thing: Any) -> str:
    return (thing.__doc__ or "").splitlines()[0]
