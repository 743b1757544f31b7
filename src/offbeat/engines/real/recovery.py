"""A server is lost, and nothing else: from its last checkpoint and the journal since, everything is computed again.

What the server did with every message was written down before anybody was answered, where it outlives the server. The
order of arrivals is all that chance had chosen, so computing it again (as a replay does) gives the same bits.
"""

from collections.abc import Iterable
from copy import copy

from offbeat.core.effects import Call, Push
from offbeat.core.feed import Feed
from offbeat.core.shares import Shares
from offbeat.core.solver import Solver, World
from offbeat.core.task import Task
from offbeat.engines.real.checkpoint import Checkpoint, SavedWorker, load_worker, pack, save_worker, unpack
from offbeat.engines.real.messages import Entry
from offbeat.engines.replay import SERIAL, Replay, ReplayedWorker
from offbeat.engines.replay import Entry as ReplayEntry
from offbeat.engines.running.rounds import Rounds


def recoverable(solver: Solver) -> bool:
    """Whether a server serialises all that its workers do: then the journal tells everything."""
    return bool(solver.asks <= SERIAL)


def bring_forward(
    task: Task,
    solver: Solver,
    feed: Feed,
    world: World,
    seed: int,
    saved: Checkpoint | None,
    journal: Iterable[Entry],
    now: float,
) -> Checkpoint:
    """The run's state after its last journal entry, computed again from a checkpoint or from the beginning."""
    fresh = copy(feed)
    fresh.draws, fresh.shares = [0] * world.workers, Shares(() if saved is None else saved.held)
    replay = Replay(task, solver, fresh, world, seed=seed)
    if saved is not None:
        _load(replay, saved)
    replay.follow(ReplayEntry(*entry) for entry in journal)
    return _save(replay, now)


def _load(replay: Replay, saved: Checkpoint) -> None:
    solver, world, codec, serving = replay.solver, replay.world, replay.codec, replay.serving
    serving.state = solver.load_server(unpack(codec, saved.server, saved.tensors), replay.initial.x, world)
    serving.there, serving.waiting = set(saved.there), set(saved.waiting)
    replay.ledger.load(saved.counters)
    for i, w in saved.workers.items():
        start, told, buffers = load_worker(codec, solver, world, w)
        rounds = Rounds(solver, start, codec)
        replayed = replay.workers[i] = ReplayedWorker(rounds, buffers)
        replayed.unseen = rounds.rerun(start, told)
        asks = type(replayed.unseen)
        replayed.kept_works = [*w.sent_works, *w.works]
        if rounds.pushed is not None and asks is not Push and rounds.early is None and not w.called:
            replayed.unsent, replayed.kept_works, replayed.later_works = rounds.pushed, w.sent_works, w.works
        replayed.known_works = len(replayed.kept_works)
        replay.samples_of[i] = w.samples
        if w.called:
            replayed.ready = False
            if asks is Call or asks is Push:
                replayed.unseen = None
        replay.feed.draws[i] = w.draws


def _save(replay: Replay, now: float) -> Checkpoint:
    serving, codec = replay.serving, replay.codec
    workers: dict[int, SavedWorker] = {}
    for i, w in replay.workers.items():
        w.catch_up()
        workers[i] = made = save_worker(codec, w.rounds, w.buffers)
        made.draws, made.samples, made.works = replay.feed.draws[i], replay.samples_of[i], w.kept_works
        if w.unsent is not None:
            made.works, made.sent_works = w.later_works, w.kept_works
        made.called = i in serving.waiting
    server, tensors = pack(codec, replay.solver.save_server(serving.state))
    there, waiting = sorted(serving.there), sorted(serving.waiting)
    settled = [0] * replay.world.workers
    held = replay.feed.shares.plain()
    return Checkpoint(now, server, tensors, replay.ledger.counters(), there, waiting, workers, settled, [], held)
