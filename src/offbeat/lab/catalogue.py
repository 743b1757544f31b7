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
            "parameters": m.parameters,
            "forward": m.forward,
            "training": m.training,
            "cc_forward": m.forward / m.parameters,
            "cc_training": m.training / m.parameters,
            "cc_published": m.published,
            "input": list(m.shape),
            "what": m.line,
        }
        for name, m in MODELS.items()
    ]


def _recipes() -> list[dict[str, Any]]:
    from importlib.resources import files

    found = (f for f in files("offbeat.recipes").iterdir() if f.name.endswith(".toml"))
    return [{"name": f.name.removesuffix(".toml")} for f in sorted(found, key=lambda f: f.name)]
