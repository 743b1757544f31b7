"""Whether a plan can run, asked before anything is built or written: one answer for every command.

`check` looks at what is declared. `try_out` goes further and makes what the engine would make, one worker's part of
it. Every new run is tried out before it has a folder, and of many runs each before the first of them begins: so what
`run` refuses, `train`, `compare` and `sweep` refuse.
"""

from offbeat.core.bits import usual_torch
from offbeat.core.errors import ConfigError
from offbeat.core.memory import require
from offbeat.core.units import counted, format_size
from offbeat.engines.real.machine import check_files
from offbeat.lab.engines import check_fit, entry
from offbeat.lab.runs.plan import Plan
from offbeat.lab.watch.evaluation import check_first

_WORKER = 4_000
"""Bytes of a simulated worker without its vectors; measured."""
_TENSOR = 1_000
"""Bytes that a vector takes beside its numbers: the objects around it."""
_ALWAYS = 8
"""Vectors of a run whatever its workers: the server's, the best, those at work."""


def check(plan: Plan) -> None:
    """Refuses, in one line, what this engine cannot run or this machine cannot hold."""
    check_fit(plan)
    _ = plan.samples_budget  # epochs of a task that has none are refused here
    if plan.diagnose_every is not None and entry(plan.engine).real:
        raise ConfigError("record.diagnose_every needs engine sim: the clock of wall time does not stop")
    if plan.engine == "local":
        check_files(plan.cluster.workers)
    if not entry(plan.engine).real:
        workers = counted(plan.cluster.workers, "simulated worker")
        what = f"{workers} of {plan.solver_name} with vectors of {format_size(plan.task.nbytes)}"
        require(bytes_needed(plan), what, "use fewer workers or, for their times alone, offbeat time")
    if (reason := plan.solver.why_not(plan.world())) is not None:
        raise ConfigError(reason)


def try_out(plan: Plan) -> None:
    """The same, and what is refused when the rule meets the task: its optimizer, row-sparse gradients."""
    check(plan)
    world, initial = plan.world(), plan.task.init(plan.seed)
    plan.solver.init_server(initial.x, world)
    plan.solver.init_worker(world.present[0], initial.x, world)


def try_target(plan: Plan) -> None:
    """Refuses a target that the task does not measure; a run itself sees that at its first evaluation."""
    if plan.budget.until is not None:
        with usual_torch():
            measured = plan.task.evaluate(plan.task.init(plan.seed), lambda function, items: list(map(function, items)))
        check_first(plan, {"loss": None, **measured})


def bytes_needed(plan: Plan) -> int:
    """About what a simulation holds: its workers, the vectors that the rule keeps of each, and a few of its own."""
    workers, nbytes = plan.cluster.workers, plan.task.nbytes
    if getattr(plan.task, "row_sparse", False):
        nbytes = 0  # rows alone are kept, of one array that is shared
    of_each = plan.solver.vectors * (nbytes + _TENSOR) + plan.solver.bytes_a_peer * workers
    return workers * (_WORKER + of_each) + _ALWAYS * plan.task.nbytes
