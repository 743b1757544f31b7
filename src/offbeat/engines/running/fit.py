"""Whether an engine and a solver go together: a value with its reason, asked before anything is built."""

from collections.abc import Iterable

from offbeat.core.effects import Await, Batch, Call, Grad, Push, Stop
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.core.solver import Solver, World
from offbeat.core.task import Task
from offbeat.engines.cluster import Cluster


def world_of(cluster: Cluster, task: Task, feed: Feed, seed: int, start: int | None = None) -> World:
    """What a rule may know of its surroundings. `start`: so many workers begin, and the others may join later."""
    begin = range(cluster.workers)[:start]
    present = tuple(i for i in begin if cluster.first_join(i) == 0)
    joining = {e.worker for e in cluster.events if e.kind == "join" and e.at > 0} | {
        *range(len(begin), cluster.workers)
    }
    for loss in cluster.loss:
        if loss.back is not None:
            joining |= set(range(cluster.workers) if loss.workers is None else loss.workers)
    return World(cluster.workers, task.layout, present, feed.batch, task.size, seed, tuple(sorted(joining)))


def lacking(offered: Iterable[type], solver: Solver | type[Solver]) -> str | None:
    """What of the effects that a solver's rounds use an engine does not offer; None where it offers all."""
    missing = solver.asks - frozenset(offered)
    return f"it asks for {', '.join(sorted(e.__name__ for e in missing))}" if missing else None


def uncuttable(solver: Solver | type[Solver]) -> str | None:
    """Why the vector of a solver's server cannot lie in parts on several machines; None where it can."""
    if Call not in solver.asks or solver.asks - {Grad, Batch, Call, Push, Await, Stop}:
        return "its parameters are not with a server alone"
    return solver.needs_whole if isinstance(solver, type) else solver.why_whole()


def require(engine: str, offered: Iterable[type], solver: Solver, world: World) -> None:
    """Refuses, in one line, what cannot run on this engine in this world."""
    if (reason := lacking(offered, solver)) is not None:
        raise ConfigError(f"the {engine} engine cannot run {type(solver).__name__}: {reason}")
    if (reason := solver.why_not(world)) is not None:
        raise ConfigError(reason)
