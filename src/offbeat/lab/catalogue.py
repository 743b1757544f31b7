"""What there is, in rows."""

from importlib.resources import files
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.lab.clusters import ready_clusters
from offbeat.lab.engines import ENGINES
from offbeat.solvers import SOLVERS, hyper_parameters, solver_class
from offbeat.tasks import TASKS
from offbeat.tasks.models import MODELS


def catalogue(what: str) -> list[dict[str, Any]]:
    """Rows for `offbeat list`."""
    rows = {"solvers": _solvers, "tasks": _tasks, "models": _models, "engines": _engines, "clusters": _clusters}
    return rows[what]()


def _solvers() -> list[dict[str, Any]]:
    rows = []
    for name in SOLVERS:
        kind = solver_class(name)
        options = ", ".join(f"{k}={v}" for k, v in hyper_parameters(kind).items()) or "-"
        engines = [e for e, engine in ENGINES.items() if engine.why_not(kind) is None]
        paper = kind.paper if kind.paper != "-" else ", ".join(getattr(kind, "cite", ())) or "-"
        runs_on = {"paper": paper, "engines": ", ".join(engines)}
        rows.append({"name": name, "what": kind.line, **runs_on, "options": options})
    return rows


def engines_of(name: str) -> list[dict[str, Any]]:
    """Every engine, and whether it runs this solver: "yes", or why not."""
    from offbeat.engines.running.fit import uncuttable

    kind = solver_class(name)
    rows = [
        {"engine": e, "what": engine.line, "runs it": engine.why_not(kind) or "yes"} for e, engine in ENGINES.items()
    ]
    in_parts = ENGINES["ray"].why_not(kind) or uncuttable(kind) or "yes"
    return [*rows, {"engine": "ray.shards", "what": "the same, with its server in parts", "runs it": in_parts}]


def references(name: str) -> str:
    """The papers behind a solver, as BibTeX: those of this project's four first."""
    kind = solver_class(name)
    entries = bibliography()
    keys = [k for k in getattr(kind, "paper", "-").split(", ") if k != "-"] + list(getattr(kind, "cite", ()))
    if not keys:
        raise ConfigError(f"solver {name!r} names no paper")
    if missing := sorted(set(keys) - set(entries)):
        raise ConfigError(f"solver {name!r} cites {', '.join(missing)}, which solvers/references.bib does not have")
    return "\n".join(entries[key] for key in dict.fromkeys(keys))


def bibliography() -> dict[str, str]:
    """Every entry of solvers/references.bib, by key."""
    text = files("offbeat.solvers").joinpath("references.bib").read_text(encoding="utf-8")
    found = {}
    for entry in text.split("\n@")[1:]:
        key = entry[entry.index("{") + 1 : entry.index(",")]
        found[key] = f"@{entry.strip()}\n"
    return found


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


def _engines() -> list[dict[str, Any]]:
    return [{"name": name, "clock": engine.clock, "what": engine.line} for name, engine in ENGINES.items()]


def _clusters() -> list[dict[str, Any]]:
    return [
        {"name": r.name, "workers": r.cluster["workers"], "what": r.title, "times are for": r.model}
        for r in ready_clusters().values()
    ]
