"""Which engine runs a plan."""

from offbeat.core.errors import unknown
from offbeat.engines.engine import Engine
from offbeat.lab.plan import Plan

CLOCKS = {"sim": "virtual", "local": "wall"}


def clock_of(plan: Plan) -> str:
    if plan.engine not in CLOCKS:
        raise unknown("engine", plan.engine, CLOCKS)
    return CLOCKS[plan.engine]


def build_engine(plan: Plan, threads: int) -> Engine:
    """The engine that the plan names, ready to run; `threads` compute gradients in `sim`, and evaluate in all."""
    per_worker = _per_worker(plan)
    if plan.engine == "local":
        from offbeat.core.units import parse_duration
        from offbeat.engines.local import Local, Options

        options = Options(
            on_loss=plan.local.get("on_loss", "restart"),
            patience_seconds=parse_duration(plan.local.get("patience", "60s"), "local.patience"),
            restarts=plan.local.get("restarts", 20),
            gap=plan.gap,
            quota=per_worker,
            faults=tuple(plan.local.get("faults", ())),
        )
        feed = plan.feed()
        parts = (plan.task, plan.solver, plan.cluster, feed)
        return Local(*parts, seed=plan.seed, threads=threads, options=options, recipe=plan.recipe)
    from offbeat.engines.sim import Sim

    return Sim(
        plan.task,
        plan.solver,
        plan.cluster,
        plan.feed(),
        seed=plan.seed,
        threads=threads,
        gap=plan.gap,
        samples_per_worker=per_worker,
    )


def _per_worker(plan: Plan) -> int | None:
    if plan.budget.per == "global":
        return None
    samples = plan.samples_budget
    assert samples is not None
    return max(1, round(samples / plan.cluster.workers))
