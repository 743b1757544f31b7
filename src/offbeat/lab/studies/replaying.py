"""`offbeat replay`: a real run computed again from its record, or the same arrivals under another rule."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from offbeat.core.bits import usual_torch
from offbeat.core.effects import Lock, SharedAdd, Unlock
from offbeat.core.errors import ConfigError, OffbeatError, StoreError
from offbeat.engines.replay import SERIAL, SHARED, Entry, Replay
from offbeat.folders.description import ENDED
from offbeat.folders.run_files import RunFiles, rows
from offbeat.lab.config import make, put
from offbeat.lab.runs.plan import Plan, build
from offbeat.lab.runs.result import Run
from offbeat.lab.runs.summary import params_sha256
from offbeat.lab.runs.trust import check_trusted

LOCK_FREE = (
    "its workers read and add without a lock: reads may be torn, additions interleave component by component and some "
    "are lost; here each is whole, in the order of the trace"
)


def replay(
    path: Path,
    *,
    plan: Plan | None = None,
    solver: str | None = None,
    settings: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> dict[str, Any]:
    """What a replay finds: distance to the real parameters, or what would have been.

    `solver` (and `settings`, dotted keys) ask what the same arrivals would have done under another rule. A run that was
    made of Python objects needs its `plan`. `trust` lets a folder that was not made here run the code that it names.
    """
    files = RunFiles.open(path)
    if files.clock != "wall" or files.info.engine == "threads":
        raise ConfigError(f"{path} is of the {files.info.engine} engine, whose order is its seed's: run it again")
    if files.status not in ENDED:
        raise StoreError(f"{path} is {files.status}: only a finished run can be replayed")
    if plan is None:
        check_trusted(files, trust)
        plan = _plan(files, solver, settings or {})
    real = Run.load(path, task=plan.task)
    if real.params.numel() != plan.task.layout.size:
        raise StoreError(f"{path} has {real.params.numel():,} parameters, and its task {plan.task.layout.size:,}")
    changed = solver is not None or bool(settings)
    with usual_torch():
        engine = Replay(
            plan.task,
            plan.solver,
            plan.feed(),
            plan.world(),
            seed=plan.seed,
        )
        try:
            x, why = _recompute(engine, files, plan)
        except OffbeatError:
            raise
        except Exception as e:  # a record in an order that no server makes
            raise StoreError(f"{path} has a record that is damaged or of another run: {type(e).__name__} {e}") from e
        held_out = plan.task.evaluate(real.point._replace(x=x), lambda f, items: [f(i) for i in items])
    distance = float((x - real.params).norm())
    found = {
        "run": str(path),
        "solver": plan.solver_name,
        "what_if": changed,
        "updates": engine.updates,
        "gradients": engine.gradients,
        "equal": bool(torch.equal(x, real.params)),
        "distance": distance,
        "relative_distance": distance / (float(real.params.norm()) or 1.0),
        "why": why if distance and not changed else None,
        "params_sha256": params_sha256(x),
        "loss": held_out.get("loss"),
        "accuracy": held_out.get("accuracy"),
        "real": {k: real.summary.get(k) for k in ("solver", "updates", "loss", "accuracy", "params_sha256")},
    }
    if changed:
        found["calls_left_out"] = engine.skipped
    return found


def _plan(run: RunFiles, solver: str | None, settings: Mapping[str, Any]) -> Plan:
    if run.config.get("from") == "python":
        raise ConfigError(
            f"{run.path} was made by a Python script: hand its plan to offbeat.lab.studies.replaying.replay"
        )
    values = dict(run.config)
    if solver is not None:
        values["solver"] = {"name": solver}
    for key, value in settings.items():
        put(values, key, value)
    return build(make(values))


def _recompute(engine: Replay, run: RunFiles, plan: Plan) -> tuple[torch.Tensor, str | None]:
    asks = plan.solver.asks
    if asks <= SERIAL:
        engine.follow(Entry(*row.values()) for row in rows(run.arrivals()))
        return engine.parameters, "the bits of a server's run must be the same: please report this"
    if SharedAdd in asks and getattr(plan.solver, "group", 1) == 1 and asks - {Lock, Unlock} <= SHARED | _groups():
        wanted = rows(run.trace(), "worker", "version_read", "started", "applied")
        found = [r for r in wanted if r["applied"]]
        if all(r["version_read"] is None for r in found):  # an exchange comes just before its gradient
            found.sort(key=lambda r: r["started"])
        return engine.follow_shared([(r["worker"], r["version_read"]) for r in found], engine.initial.x), LOCK_FREE
    names = ", ".join(sorted(e.__name__ for e in asks - SERIAL))
    raise ConfigError(
        f"{plan.solver_name} cannot be replayed: its workers ask for {names}, and neither a server nor a shared vector "
        "puts that in order"
    )


def _groups() -> frozenset[type]:
    from offbeat.core.effects import AllReduce

    return frozenset({AllReduce})  # asked for by groups of more than one
