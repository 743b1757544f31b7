"""Which engine runs a plan."""

from offbeat.core.errors import ConfigError, unknown
from offbeat.engines.engine import Engine
from offbeat.lab.plan import Plan

IN_PLACE = ("plain", "hogwild")
"""What the threads engine can be."""
CLOCKS = {"sim": "virtual", "local": "wall", "threads": "wall"}


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
        return Local(
            *parts,
            seed=plan.seed,
            threads=threads,
            options=options,
            recipe=plan.recipe,
            cradle=plan.local.get("cradle"),
        )
    if plan.engine == "threads":
        return _threads(plan, threads)
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


def _threads(plan: Plan, threads: int) -> Engine:
    """Hogwild!, or plain SGD on one thread: what a kernel that trains in place can be."""
    from offbeat.engines.threads import Threads
    from offbeat.solvers.checks import additive

    if plan.solver_name not in IN_PLACE or getattr(plan.solver, "locked", False):
        rule = "hogwild with locked=true" if plan.solver_name == "hogwild" else plan.solver_name
        raise ConfigError(f"the threads engine runs plain and hogwild (without a lock), not {rule}")
    if plan.partition != "shared" or plan.cluster.events or plan.cluster.delay or plan.budget.per == "worker":
        raise ConfigError("the threads engine has no delays, joins, losses, partitions and budgets per worker")
    workers = plan.cluster.workers
    if plan.solver_name == "plain" and workers != 1:
        raise ConfigError(f"plain runs on one worker, got workers={workers}: use --workers 1, or hogwild")
    eta = getattr(plan.solver, "eta", None) or additive(plan.solver.opt, "plain", "the kernel trains in place")  # type: ignore[attr-defined]
    solver = plan.solver
    return Threads(
        plan.task, solver, lambda work: eta * solver.rate(work), workers=workers, seed=plan.seed, threads=threads
    )


def _per_worker(plan: Plan) -> int | None:
    if plan.budget.per == "global":
        return None
    samples = plan.samples_budget
    assert samples is not None
    return max(1, round(samples / plan.cluster.workers))
