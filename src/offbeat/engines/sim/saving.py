"""A checkpoint of the simulator may fall anywhere: under asynchrony no instant has every worker between rounds.

Kept are, per worker, the state at the start of its round and what the round was told since; to resume, the round is
run again against that, and its pending gradient is computed again.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from offbeat.engines.running.rounds import Rounds
from offbeat.engines.sim.all_reduce import Reduction
from offbeat.engines.sim.computing import Computing
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.departures import Departures
from offbeat.engines.sim.event_heap import COMPUTED, Event
from offbeat.engines.sim.peers import Peers
from offbeat.engines.sim.server_link import ServerLink
from offbeat.engines.sim.shared import SharedMemory

_COUNTERS = ("now", "bytes", "living", "loss_limit")


class Parts(NamedTuple):
    """What of the engine has something to keep."""

    computing: Computing
    link: ServerLink
    reduction: Reduction
    peers: Peers
    memory: SharedMemory
    departures: Departures


def save(context: Context, parts: Parts, started: bool, tensors: dict[str, Any]) -> Any:
    """Everything a run needs to go on, as JSON and tensors."""
    events, serving = context.events, context.serving
    # The data of a gradient that is being computed is its worker's job, which is saved with the worker.
    heap = [(*event[:4], None if event[3] == COMPUTED else event[4]) for event in events.heap]
    tree = {
        "started": started,
        "counters": {n: getattr(context, n) for n in _COUNTERS},
        "ledger": context.ledger.counters(),
        "heap": heap,
        "sequence": events.sequence,
        "workers": [w.saved() for w in context.workers],
        "server": context.solver.save_server(serving.state),
        "serving": (serving.there, serving.waiting),
        "draws": context.feed.draws,
        "reducing": sorted(parts.reduction.waiting),
        "computing": parts.computing.saved(),
        "link": parts.link.saved(),
        "memory": parts.memory.saved(),
        "peers": parts.peers.saved(),
        "reduction": parts.reduction.saved(),
        "departures": parts.departures.saved(),
    }
    return context.codec.encode(tree, tensors)


def restore(
    context: Context, parts: Parts, rounds: Callable[[Any], Rounds], encoded: Any, tensors: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[int, Any]]:
    """The inverse of `save`; what was saved, and what each worker's rule waits for."""
    tree = context.codec.decode(encoded, dict(tensors))
    for name, value in tree["counters"].items():
        setattr(context, name, value)
    context.ledger.load(tree["ledger"])
    context.feed.draws = tree["draws"]
    serving, solver = context.serving, context.solver
    serving.state = solver.load_server(tree["server"], context.initial.x, context.world)
    serving.there, serving.waiting = tree["serving"]
    for name in ("computing", "link", "memory", "peers", "reduction", "departures"):
        if name in tree:  # what is younger than the checkpoint has nothing to remember
            getattr(parts, name).load(tree[name])
    pending = {}
    for i, (w, saved) in enumerate(zip(context.workers, tree["workers"], strict=True)):
        w.load(saved)
        if saved["rounds"] is None:
            continue
        start, told = saved["rounds"]
        w.rounds = rounds(solver.revive(start, context.world))
        if w.alive:
            pending[i] = w.rounds.rerun(w.rounds.start, told)
    events = context.events
    events.sequence = tree["sequence"]
    # A stale event of a cancelled gradient keeps None as its job, which no worker's job is.
    events.heap[:] = [_with_job(context, event) for event in tree["heap"]]
    return tree, pending


def _with_job(context: Context, event: Event) -> Event:
    time, i, sequence, code, data = event
    if code != COMPUTED:
        return event
    job = context.workers[i].job
    return time, i, sequence, code, job if job is not None and job.due == time else data
