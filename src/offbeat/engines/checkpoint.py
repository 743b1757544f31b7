"""A checkpoint of the simulator may fall anywhere: under asynchrony no instant has every worker between rounds.

Kept are, per worker, the state at the start of its round and the answers fed to it since; to resume, the round is
re-run against them, and its pending gradient is computed again.
"""

from collections.abc import Mapping
from typing import Any

from offbeat.core.effects import Applied, Call, Gradient
from offbeat.engines.pool import Job
from offbeat.engines.sim import COMPUTED, Sim
from offbeat.engines.slot import WorkerSlot

_COUNTERS = (
    "now",
    "updates",
    "samples",
    "samples_applied",
    "bytes",
    "loss_limit",
    "queued",
    "served",
    "sequence",
    "free",
    "fed",
    "living",
    "started",
)
_SLOTS = (
    "start",
    "answers",
    "alive",
    "life",
    "samples",
    "computing",
    "delayed",
    "communicating",
    "present",
    "arrived",
    "script",
    "buffers",
    "fed",
)


def save(sim: Sim, tensors: dict[str, Any]) -> Any:
    """Everything a run needs to go on, as JSON and tensors. Call between two events."""
    heap = [(*event[:4], None if event[3] == COMPUTED else event[4]) for event in sim.heap]
    workers = []
    for w in sim.workers:
        job = None
        if w.job is not None:
            j = w.job
            job = (j.x, j.version, j.source, j.draw, j.started, j.due, j.delay)
        positions = (w.times.position, [d.position for d in w.delays])
        workers.append({**{n: getattr(w, n) for n in _SLOTS}, "job": job, "positions": positions})
    tree = {
        "counters": {n: getattr(sim, n) for n in _COUNTERS},
        "heap": heap,
        "workers": workers,
        "server": sim.solver.save_server(sim.server),
        "draws": sim.feed.draws,
        "service": None if sim.service is None else sim.service.position,
        "joining": sorted(sim.reduction.waiting),
        "memory": sim.memory.state(),
        "latest": sim.peers.latest,
        "waiting": sim.peers.waiting,
        "feeder": None if sim.feeder is None else sim.feeder.position,
    }
    return sim.codec.encode(tree, tensors)


def restore(sim: Sim, encoded: Any, tensors: Mapping[str, Any]) -> None:
    """The inverse of `save`: rounds are re-run against their answers, pending gradients are resubmitted."""
    tree = sim.codec.decode(encoded, dict(tensors))
    for name, value in tree["counters"].items():
        setattr(sim, name, value)
    sim.feed.draws = tree["draws"]
    if sim.service is not None:
        sim.service.position = tree["service"]
    sim.server = sim.solver.load_server(tree["server"], sim.initial.x, sim.world)
    if sim.feeder is not None:
        sim.feeder.position = tree["feeder"]
    sim.memory.load(tree["memory"])
    sim.peers.latest, sim.peers.waiting = tree["latest"], tree["waiting"]
    for w, saved in zip(sim.workers, tree["workers"], strict=True):
        for name in _SLOTS:
            setattr(w, name, saved[name])
        if w.start is not None:
            w.start = sim.solver.revive(w.start, sim.world)
        w.state = w.start
        w.times.position, positions = saved["positions"]
        for delay, position in zip(w.delays, positions, strict=True):
            delay.position = position
    for i, (w, saved) in enumerate(zip(sim.workers, tree["workers"], strict=True)):
        if w.alive:
            pending = _replay_round(sim, w)
            if i in tree["joining"]:
                sim.reduction.waiting[i] = pending
        if saved["job"] is not None:
            x, version, source, draw, started, due, delay = saved["job"]
            w.job = Job(x, version, w.buffers, source, draw, started)
            w.job.due, w.job.delay = due, delay
            sim.dispatch(w.job)
    # A stale event of a cancelled gradient keeps None as its job, which no worker's job is.
    sim.heap = [
        (time, i, n, code, _job_due(sim, i, time) if code == COMPUTED else data)
        for time, i, n, code, data in tree["heap"]
    ]


def _replay_round(sim: Sim, w: WorkerSlot) -> Any:
    w.state = sim.codec.snapshot(w.start)
    w.round = sim.solver.round(w.state)
    pending = next(w.round)
    w.gradient = None
    for kind, sender, value in w.answers:
        if kind == "answer":
            pending = w.round.send(value)
            if type(value) is Gradient:
                w.gradient = value
            if type(pending) in (Call, Applied):
                w.gradient = None
        elif kind == "mixed":
            w.state.x = value
        else:  # announcements were made the first time
            list(sim.solver.on_message(w.state, sender, value))
    return pending


def _job_due(sim: Sim, i: int, time: float) -> Job | None:
    job = sim.workers[i].job
    return job if job is not None and job.due == time else None
