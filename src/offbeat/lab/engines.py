"""The table of engines: what each is, whether it can run something and why not, and how it is built for a plan.

A new engine is a line of `ENGINES` and a function that builds it.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from offbeat.core.errors import ConfigError, unknown
from offbeat.solvers import load_object

if TYPE_CHECKING:  # the table itself is read before torch has loaded, for `offbeat --help`
    from offbeat.core.solver import Solver
    from offbeat.engines.protocol import Engine
    from offbeat.lab.runs.plan import Plan

    Rule = Solver | type[Solver]


@dataclass(frozen=True)
class ForTests:
    """What tests of real processes hand in: a launcher that many runs share, and what goes wrong exactly when."""

    launcher: Any = None
    faults: tuple[Any, ...] = ()


@dataclass(frozen=True)
class EngineEntry:
    """One engine."""

    path: str
    """`package.module:Class`, imported when it is needed."""
    clock: Literal["virtual", "wall"]
    line: str
    build: "Callable[[Plan, int, ForTests], Engine]"
    """The engine for a plan; so many threads compute or evaluate."""
    reason: "Callable[[Any, Rule, Plan | None], str | None]"
    """Why its class cannot run a rule, or a plan; None where it can."""
    needs: tuple[str, ...] = ()
    """Modules beyond the package itself, and """
    extra: str = ""
    """the extra that they come with."""

    def why_not(self, rule: "Rule", plan: "Plan | None" = None) -> str | None:
        """Why it cannot run this rule (as this plan has it), in words; None where it can."""
        missing = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if missing:
            return f"it needs {' and '.join(missing)}: pip install 'offbeat[{self.extra}]'"
        return self.reason(load_object(self.path, "engine"), rule, plan)

    @property
    def real(self) -> bool:
        """Whether its times are the machine's, which a run then needs to itself."""
        return self.clock == "wall"


def entry(name: str) -> EngineEntry:
    if name not in ENGINES:
        raise unknown("engine", str(name), ENGINES)
    return ENGINES[name]


def build_engine(plan: "Plan", threads: int, for_tests: ForTests = ForTests()) -> "Engine":  # noqa: B008  # frozen
    """The engine that the plan names, ready to run; `threads` compute gradients in `sim`, and evaluate in all."""
    check_fit(plan)
    return entry(plan.engine).build(plan, threads, for_tests)


def check_fit(plan: "Plan") -> None:
    """Refuses a plan that its engine cannot run."""
    if (reason := entry(plan.engine).why_not(plan.solver, plan)) is not None:
        raise ConfigError(f"the {plan.engine} engine cannot run {plan.solver_name}: {reason}")


# -- why not ----------------------------------------------------------------------------------------------------------


def _lacking(engine: Any, rule: "Rule", plan: "Plan | None") -> str | None:
    """An engine that interprets rules can run those whose effects it offers."""
    from offbeat.engines.running.fit import lacking

    return lacking(engine.asks, rule)


def _not_for_real(engine: Any, rule: "Rule", plan: "Plan | None") -> str | None:
    """A real engine, moreover, has a network of its own."""
    from offbeat.engines.real.site import check_cluster

    if (reason := _lacking(engine, rule, plan)) is not None or plan is None:
        return reason
    try:
        check_cluster(plan.cluster, plan.engine)
    except ConfigError as e:
        return str(e)
    return None


def _not_on_ray(engine: Any, rule: "Rule", plan: "Plan | None") -> str | None:
    """Nor does everything go with a server in parts, or with sums among workers."""
    from offbeat.core.solver import Solver
    from offbeat.engines.ray.on_ray import why_not_so

    if (reason := _not_for_real(engine, rule, plan)) is not None or plan is None:
        return reason
    assert isinstance(rule, Solver)
    reason = why_not_so(_ray_options(plan), rule, plan.task)
    return None if reason is None else f"not {reason}"


def _not_in_place(engine: Any, rule: "Rule", plan: "Plan | None") -> str | None:
    """The threads engine runs no rule: a kernel of the task's does what the rule would."""
    from offbeat.core.solver import Solver
    from offbeat.engines.real.site import check_cluster

    if isinstance(rule, type):
        able = rule.rate_in_place is not Solver.rate_in_place
    else:
        try:
            able = rule.rate_in_place() is not None
        except ConfigError as e:  # not with this optimizer
            return str(e)
    if not able:
        return "it does not train in place, without a lock and without clipping, as plain and hogwild can"
    if plan is None:
        return None
    if not hasattr(plan.task, "sweep"):
        return f"task {plan.task.name!r} cannot train in place, as word2vec can"
    if plan.partition != "shared" or plan.cluster.events or plan.cluster.delay or plan.budget.per == "worker":
        return "there are no delays, joins, losses, partitions and budgets per worker"
    if plan.sampling != "shuffled":
        return "it goes through the data in order: leave out data.sampling"
    try:
        check_cluster(plan.cluster, "threads")
    except ConfigError as e:
        return str(e)
    if rule.alone and plan.cluster.workers != 1:
        return f"it runs on one worker, got workers={plan.cluster.workers}: use --workers 1, or hogwild"
    return None


# -- how it is built --------------------------------------------------------------------------------------------------


def _sim(plan: "Plan", threads: int, for_tests: ForTests) -> "Engine":
    from offbeat.engines.sim import Sim

    parts = (plan.task, plan.solver, plan.cluster, plan.feed())
    return Sim(*parts, seed=plan.seed, threads=threads, gap=plan.gap, samples_per_worker=plan.samples_per_worker)


def _real(plan: "Plan", for_tests: ForTests) -> Any:
    """The options of real processes, wherever they run."""
    from offbeat.core.units import parse_duration
    from offbeat.engines.real.site import Options

    return Options(
        on_loss=plan.local.on_loss,
        patience_seconds=parse_duration(plan.local.patience, "local.patience"),
        restarts=plan.local.restarts,
        gap=plan.gap,
        quota=plan.samples_per_worker,
        start=plan.local.start,
        floor=plan.local.floor or 1,
        faults=for_tests.faults,
    )


def _local(plan: "Plan", threads: int, for_tests: ForTests) -> "Engine":
    from offbeat.engines.local import Local

    parts = (plan.task, plan.solver, plan.cluster, plan.feed())
    shared = {"seed": plan.seed, "threads": threads, "options": _real(plan, for_tests), "maker": plan.maker}
    return Local(*parts, **shared, launcher=for_tests.launcher)


def _ray(plan: "Plan", threads: int, for_tests: ForTests) -> "Engine":
    from offbeat.engines.ray.connection import require_ray

    require_ray()
    from offbeat.engines.ray.on_ray import OnRay

    parts = (plan.task, plan.solver, plan.cluster, plan.feed())
    shared = {"seed": plan.seed, "threads": threads, "options": _real(plan, for_tests), "maker": plan.maker}
    return OnRay(*parts, **shared, ray=_ray_options(plan), crew=for_tests.launcher)


def _ray_options(plan: "Plan") -> Any:
    from offbeat.core.units import parse_duration
    from offbeat.engines.ray.ray_options import RayOptions

    given = plan.ray.model_dump(exclude={"wait"})
    return RayOptions(**given, wait_seconds=parse_duration(plan.ray.wait, "ray.wait"))


def _debug(plan: "Plan", threads: int, for_tests: ForTests) -> "Engine":
    from offbeat.engines.debug import Debug

    parts = (plan.task, plan.solver, plan.cluster, plan.feed())
    return Debug(*parts, seed=plan.seed, threads=threads, options=_real(plan, for_tests))


def _threads(plan: "Plan", threads: int, for_tests: ForTests) -> "Engine":
    from offbeat.engines.threads import Threads

    rate = plan.solver.rate_in_place()
    assert rate is not None
    return Threads(plan.task, plan.solver, rate, workers=plan.cluster.workers, seed=plan.seed, threads=threads)


ENGINES = {
    "sim": EngineEntry("offbeat.engines.sim:Sim", "virtual", "virtual time", _sim, _lacking),
    "local": EngineEntry("offbeat.engines.local:Local", "wall", "real processes", _local, _not_for_real),
    "ray": EngineEntry(
        "offbeat.engines.ray.on_ray:OnRay",
        "wall",
        "the machines of a Ray cluster",
        _ray,
        _not_on_ray,
        needs=("ray", "zmq"),
        extra="ray",
    ),
    "debug": EngineEntry(
        "offbeat.engines.debug:Debug", "wall", "threads of one process, for a debugger", _debug, _not_for_real
    ),
    "threads": EngineEntry("offbeat.engines.threads:Threads", "wall", "word2vec, in place", _threads, _not_in_place),
}
