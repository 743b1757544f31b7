"""What there is, in rows."""

from typing import Any

from offbeat.solvers import SOLVERS, hyper_parameters, solver_class
from offbeat.tasks import TASKS
from offbeat.tasks.models import MODELS


def catalogue(what: str) -> list[dict[str, Any]]:
    """Rows for `offbeat list`."""
    return {"solvers": _solvers, "tasks": _tasks, "models": _models, "recipes": _recipes}[what]()


def _solvers() -> list[dict[str, Any]]:
    from offbeat.engines.local import Local
    from offbeat.engines.sim import Sim
    from offbeat.lab.engines import IN_PLACE

    rows = []
    for name in SOLVERS:
        kind = solver_class(name)
        options = ", ".join(f"{k}={v}" for k, v in hyper_parameters(kind).items()) or "-"
        engines = [e for e, made in (("sim", Sim), ("local", Local)) if kind.asks <= made.asks]
        engines += ["threads"] if name in IN_PLACE else []
        row = {"name": name, "what": kind.line, "options": options, "paper": kind.paper}
        rows.append({**row, "engines": ", ".join(engines)})
    return rows


def _tasks() -> list[dict[str, Any]]:
    return [{"name": name, "what": entry.line, "model": entry.model or "-"} for name, entry in TASKS.items()]


def _models() -> list[dict[str, Any]]:
    """Operations are of one sample, one multiply-add being two; CC is operations / parameters (wongpanich2020, 4.6)."""
    return [
        {
            "name": name,
            "parameters": f"{m.parameters:,}",
            "forward": _engineering(m.forward),
            "forward + backward": _engineering(m.training),
            "CC forward": f"{m.forward / m.parameters:.3g}",
            "CC both": f"{m.training / m.parameters:.3g}",
            "CC published": "-" if m.published is None else f"{m.published:g}",
            "what": m.line,
        }
        for name, m in MODELS.items()
    ]


def _engineering(operations: int) -> str:
    """7.72G"""
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if operations >= unit:
            return f"{operations / unit:.3g}{letter}"
    return str(operations)


def _recipes() -> list[dict[str, Any]]:
    from importlib.resources import files

    found = (f for f in files("offbeat.recipes").iterdir() if f.name.endswith(".toml"))
    return [{"name": f.name.removesuffix(".toml")} for f in sorted(found, key=lambda f: f.name)]
