"""A real run when several things go wrong at once: losses, checkpoints, marks and errors that meet."""

import json
import signal
import time
from contextlib import contextmanager
from math import inf

import pytest
import torch

from harness import Stop, mlp_task
from offbeat import solver
from offbeat.core.effects import Call, Grad, Gradient, Refused
from offbeat.core.feed import Feed
from offbeat.core.trace import Row
from offbeat.engines.debug.still import Inbox
from offbeat.engines.debug.thread_hub import ThreadHub
from offbeat.engines.debug.thread_port import ThreadPort
from offbeat.engines.local import Fault, Options
from offbeat.engines.real import messages as m
from offbeat.engines.real import server_loop
from offbeat.engines.real.board import Clock
from offbeat.engines.real.company import Company
from offbeat.engines.real.contact import SILENT, ServerLostError
from offbeat.engines.real.transport import Came, RunError, Said, WentAway
from offbeat.engines.replay import Entry, Replay
from offbeat.lab.contract import Case
from offbeat.lab.contract.recorder import Bowl
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers.asgd import ASGD
from processes import until
from real import ON_ONE_MACHINE, build, rows_of, run, simulated, to_its_end
from resumption import Strikes, check_books, drawn_by

pytestmark = pytest.mark.processes
SGD = optimizer_factory("sgd", lr=0.05)


def bowl(workers, **options):
    delay = options.pop("delay", "0s")
    events = options.pop("events", None)
    more = {} if events is None else {"events": events}
    feed = Feed(None, batch=1, workers=workers, seed=7)
    return {
        "workers": workers,
        "task": Bowl(),
        "feed": feed,
        "seed": 7,
        "delay": delay,
        "options": Options(**options),
        **more,
    }


@contextmanager
def within(seconds):
    """A hang is a failure."""

    def late(*_):
        raise TimeoutError(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Falling:
    """A learning rate that changes with every sample."""

    def __call__(self, work):
        return 1.0 / (1.0 + work / 20.0)


def scheduled(name, **options):
    made = solver(name, lr=0.05, **options)
    made.schedule = Falling()
    return made


def test_rows_announced_before_a_call_survive_the_server(monkeypatch):
    """The call is journaled, the steps before it are not yet read from the ring: they are forgotten."""
    monkeypatch.setattr(server_loop, "LISTEN", 1e3)
    monkeypatch.setattr(server_loop, "TICK", 1e3)  # it hears announcements only when it has to
    faults = (Fault("kill", 0), Fault("kill", 0, life=2))
    engine = run(None, solver("easgd", alpha=0.2, lr=0.05), **bowl(1, quota=24, faults=faults), updates=inf)
    assert len(engine.incidents) == 2
    sim = simulated(
        solver("easgd", alpha=0.2, lr=0.05),
        workers=1,
        task=Bowl(),
        feed=Feed(None, batch=1, workers=1, seed=7),
        seed=7,
        updates=inf,
        samples_per_worker=24,
    )
    assert torch.equal(engine.x, sim.point.x)
    assert engine.updates == sim.updates == 24
    assert sum(r.applied for r in rows_of(engine)) == 24


# -- quota ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_a_quota_counts_all_lives_also_after_a_lost_server(starter):
    """30 of 48 updates: worker 1 has been back for a while when the server goes."""
    faults = (Fault("kill", 3, worker=1), Fault("kill", 30))
    engine = run(starter, solver("asgd", lr=0.05), **bowl(2, quota=24, faults=faults), updates=inf)
    assert len(engine.incidents) == 2
    assert engine.updates == 48


# -- the work clock of a call that was put off ------------------------------------------------------------------------


def replayed(engine, rule, workers, journal):
    replay = Replay(Bowl(), rule, Feed(None, batch=1, workers=workers, seed=7), engine.world, seed=7)
    replay.follow(Entry(*entry) for entry in journal)
    return replay.parameters


class SavesOnce(Stop):
    """At the first mark; `ends` the run with it."""

    def __init__(self, updates, *, ends):
        super().__init__(updates=updates)
        self.saved, self.ends = None, ends

    def mark(self):
        if self.saved is None:
            tensors = {}
            text = json.dumps(self.engine.save(tensors))
            self.saved = (
                text,
                {n: t.clone() for n, t in tensors.items()},
                list(self.engine.rows),
                list(self.engine.journal),
            )
            if self.ends:
                return True
            self.limit = inf
            self._next()
        return super().mark()


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_a_call_that_was_put_off_keeps_its_work_clock_over_a_resume(starter):
    saves = SavesOnce(9, ends=True)
    first = build(starter, scheduled("downpour", push="delta"), **bowl(3, quota=24, delay="10ms"))
    try:
        first.run(saves.watch(first))
    finally:
        first.close()
    text, tensors, _, journal = saves.saved
    engine = build(starter, scheduled("downpour", push="delta"), **bowl(3, quota=24))
    engine.restore(json.loads(text), tensors)
    to_its_end(engine, Stop())
    assert torch.equal(engine.x, replayed(engine, scheduled("downpour", push="delta"), 3, [*journal, *engine.journal]))


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_a_call_that_was_put_off_keeps_its_work_clock_over_a_lost_server(starter):
    saves = SavesOnce(9, ends=False)
    setting = bowl(3, quota=24, delay="10ms", faults=(Fault("kill", 40),))
    engine = run(starter, scheduled("downpour", push="delta"), **setting, stop=saves)
    assert len(engine.incidents) == 1
    assert torch.equal(engine.x, replayed(engine, scheduled("downpour", push="delta"), 3, engine.journal))


# -- replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_the_answer_to_a_call_from_before_is_counted_on_both_sides(starter):
    """Both workers of a barrier were answered as often, since the server is new."""
    engine = run(starter, solver("sync", lr=0.05), **bowl(2, quota=24, faults=(Fault("kill", 0),)), updates=inf)
    assert len(engine.incidents) == 1
    replies = engine.processes.board.replies
    assert replies[0] == replies[1]


# -- a worker that waits for a peer is idle, whatever else it is told -------------------------------------------------


class SavesWhen(Stop):
    def __init__(self, when):
        super().__init__()
        self.when, self.saved = when, None

    def tick(self):
        if self.saved is None and self.when(self.engine):
            tensors = {}
            self.saved = json.dumps(self.engine.save(tensors)), tensors
        return self.saved is not None


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_a_checkpoint_after_a_loss_does_not_wait_for_one_who_waits(starter):
    """Worker 0 waits for worker 1, which is slow; worker 2 is lost meanwhile; then a checkpoint is wanted."""
    saves = SavesWhen(lambda engine: 2 not in engine.presence.there)
    setting = bowl(3, events=["lose 2 at 1s"])
    setting["delay"] = ["4s@1"]
    engine = build(starter, solver("sgp", lr=0.05), **setting)
    try:
        with within(30):
            engine.run(saves.watch(engine))
    finally:
        engine.close()
    assert saves.saved is not None


# -- mailboxes --------------------------------------------------------------------------------------------------------


class StrikesAmongLetters(Strikes):
    def mark(self):
        if self.at is None and not self.engine.arena.unread.any():
            self.limit = self.engine.updates + 1
            self._next()
            return False
        return super().mark()


def test_letters_that_died_with_the_server_block_no_mailbox(launcher):
    engine = build(launcher, solver("all-to-all", lr=0.01), **bowl(3, quota=400, patience_seconds=5.0))
    with within(100):
        to_its_end(engine, StrikesAmongLetters(10))
    assert len(engine.incidents) == 1, engine.incidents


# -- fall back --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_every_batch_has_its_row_also_where_updates_are_lost(starter):
    case = Case("allreduce", workers=3)
    engine = to_its_end(build(starter, case.make(), **bowl(3, quota=24)), Strikes(10))
    assert engine.lost_updates
    check_books(case, rows_of(engine), drawn_by(engine))


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_time_is_that_of_the_rows_also_where_updates_are_lost(starter):
    class Looks(Strikes):
        apart = None

        def mark(self):
            struck = self.at is not None
            if struck and self.apart is None:
                newest = max(r.time for r in rows_of(self.engine) if r.applied)
                self.apart = self.engine.now - newest
                return True
            try:
                return super().mark()
            finally:
                self.limit = 1
                self._next()

    looks = Looks(10)
    to_its_end(build(starter, solver("allreduce", lr=0.05), **bowl(2, delay="100ms")), looks)
    assert looks.apart < 0.5


# -- statistics after a resume ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_statistics_of_workers_that_have_not_computed_yet_survive_a_resume(starter):
    """The first evaluation after a resume, when only worker 0 has computed again."""
    task = mlp_task(norm=True)

    class Keeps(SavesOnce):
        def mark(self):
            over = super().mark()
            self.before = self.engine.point.buffers
            return over

    saves = Keeps(40, ends=True)
    first = build(starter, solver("asgd", lr=0.1), task=task, delay="2ms")
    try:
        first.run(saves.watch(first))
    finally:
        first.close()
    text, tensors, *_ = saves.saved
    engine = build(starter, solver("asgd", lr=0.1), task=task, delay=["5s@1"])
    engine.restore(json.loads(text), tensors)
    before = saves.before["norm.running_var"]
    to_its_end(engine, Stop(updates=engine.updates + 2))  # at least one more than the call that was put off
    after = engine.point.buffers["norm.running_var"]
    assert (after > 0.8 * before).all(), (after / before).tolist()


# -- what the control has not heard when it takes a checkpoint, or loses the server -----------------------------------


class TooSlowError(Exception):
    """It has happened before anybody could look away."""


class Dozes(Stop):
    """Looks away until something has happened to the cluster (a slow disk, say), and then does something."""

    def __init__(self, happened, deed, enough=lambda engine: False):
        super().__init__()
        self.happened, self.deed, self.enough = happened, deed, enough
        self.dozed, self.saved = None, None

    def tick(self):
        if self.dozed is not None:
            return self.engine.now > self.dozed + 60 or self.enough(self.engine)
        if not self.engine.updates:  # first losses are shown to the watcher
            return False
        if self.happened(self.engine):
            raise TooSlowError
        until(lambda: self.happened(self.engine), "what is to happen")
        self.dozed = Clock(self.engine.processes.board).now()
        return bool(self.deed(self))

    def save(self):
        tensors = {}
        self.saved = json.dumps(self.engine.save(tensors)), tensors
        return True

    def lose(self):
        """Asks the server, hears what it had to say before, and loses it."""
        until(lambda: self.engine.lr is not None and self.engine.now >= self.dozed, "the server's word")
        raise ServerLostError(SILENT)


def dozing(starter, rule, deed, setting, happened, enough=lambda engine: False):
    """The run after the deed. If it cannot be told what came first, everything happens later."""
    for milliseconds in (300, 2000, 10_000, 60_000):
        dozes = Dozes(happened(milliseconds / 1000), deed, enough)
        engine = build(starter, rule(), **setting(milliseconds))
        try:
            engine.run(dozes.watch(engine))
        except TooSlowError:
            continue
        finally:
            engine.close()
        break
    else:
        raise AssertionError("it had always happened before anybody could look away")
    if dozes.saved is None:
        return engine
    text, tensors = dozes.saved
    engine = build(starter, rule(), **setting(milliseconds))
    engine.restore(json.loads(text), tensors)
    begun, stop = engine.now, Stop()
    stop.tick = lambda: engine.now > begun + 60 or enough(engine)
    return to_its_end(engine, stop)


def is_past(seconds):
    """The time of an event, by the run's own clock, which goes on while the control looks away."""
    return lambda engine: Clock(engine.processes.board).now() > seconds


def of(worker):
    return lambda engine: any(r.worker == worker for r in rows_of(engine))


@pytest.mark.parametrize("deed", [Dozes.save, Dozes.lose], ids=["saved", "server lost"])
@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_who_was_to_be_lost_stays_lost(starter, deed):
    def more(engine):
        """Much has happened since, and it was gone all the time, or goes when it is found out that it is to."""
        return sum(r.worker == 1 and r.applied for r in rows_of(engine)) > 40 and 0 not in engine.presence.there

    setting = lambda ms: bowl(2, events=[f"lose 0 at {ms}ms"], delay="20ms")  # noqa: E731
    engine = dozing(starter, lambda: solver("asgd", lr=0.05), deed, setting, is_past, more)
    assert 0 not in engine.presence.there


@pytest.mark.parametrize("deed", [Dozes.save, Dozes.lose], ids=["saved", "server lost"])
@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_who_was_to_join_joins(starter, deed):
    setting = lambda ms: bowl(3, events=[f"join 2 at {ms}ms"], delay="20ms")  # noqa: E731
    engine = dozing(starter, lambda: solver("asgd", lr=0.05), deed, setting, is_past, of(2))
    assert of(2)(engine)


def is_noted(seconds):
    """The server has carried the event out and noted that; the control has heard nothing of it."""
    return lambda engine: engine.processes.board.followed[0] >= seconds


def lose_unheard(dozes):
    raise ServerLostError(SILENT)


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_what_a_lost_server_had_said_of_who_comes_is_heard(starter):
    setting = lambda ms: bowl(3, events=[f"join 2 at {ms}ms"], delay="20ms")  # noqa: E731
    engine = dozing(starter, lambda: solver("asgd", lr=0.05), lose_unheard, setting, is_noted, of(2))
    assert of(2)(engine)


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_what_a_lost_server_had_said_of_who_is_gone_is_heard(starter):
    """Nor does it come back with the next server, for a moment."""

    def more(engine):
        return sum(r.worker == 1 and r.applied for r in rows_of(engine)) > 40

    setting = lambda ms: bowl(2, events=[f"lose 0 at {ms}ms"], delay="20ms")  # noqa: E731
    engine = dozing(starter, lambda: solver("asgd", lr=0.05), lose_unheard, setting, is_noted, more)
    assert engine.presence.lives == [1, 2]


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_who_has_done_its_part_does_not_join_again(starter):
    """All-to-all takes nobody in; worker 0 has computed its quota while the control looked away."""

    def setting(milliseconds):
        return {**bowl(2, quota=8), "delay": [f"{milliseconds // 8}ms@0", f"{milliseconds}ms@1"]}

    def happened(seconds):
        return lambda engine: engine.processes.board.samples[0] >= 8

    engine = dozing(starter, lambda: solver("all-to-all", lr=0.05), Dozes.save, setting, happened)
    assert engine.ended == "idle"


# -- an event of the cluster happens once -----------------------------------------------------------------------------


def test_an_event_that_the_control_has_carried_out_is_not_carried_out_again():
    """The server dies right after it has said who is to join, before its next sign of life."""
    engine = build(None, solver("asgd", lr=0.05), **bowl(3, events=["join 2 at 50ms"], delay="1s"))
    start, started = engine._start_worker, []

    def watched(i, how):
        if i == 2:
            started.append(how)
        if i == 2 and started == ["joins"]:
            engine.processes._hub.killed.set()
            time.sleep(0.3)  # until it has noticed
            start(i, how)
            raise ServerLostError(SILENT)
        start(i, how)

    engine._start_worker = watched
    stop = Stop()
    stop.tick = lambda: engine.now > 0.5
    to_its_end(engine, stop)
    assert started == ["joins", "joins"], "once before the server was lost, and once since"


# -- an error while a checkpoint is taken -----------------------------------------------------------------------------


class Breaks(Bowl):
    def gradient(self, point, batch, key):
        time.sleep(1.0)
        raise ValueError("broken")


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_an_error_during_a_checkpoint_is_said_at_once(starter):
    setting = {**bowl(2, patience_seconds=20.0), "task": Breaks()}
    saves = SavesWhen(lambda engine: True)
    saves.tick = lambda: SavesWhen.tick(saves) and False
    engine = build(starter, solver("asgd", lr=0.05), **setting)
    try:
        with pytest.raises(RunError, match="broken"):
            engine.run(saves.watch(engine))
    finally:
        engine.close()


# -- a worker that refuses its own gradients --------------------------------------------------------------------------


class Picky(ASGD):
    """Throws all but every fourth gradient away by itself."""

    def round(self, w):
        g = yield Grad(w.view.x, w.view.version)
        if g.draw % 4:
            yield Refused(w.rank if hasattr(w, "rank") else 0, g, w.view.version)
            return
        w.view = yield Call(g)


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_what_a_worker_refused_before_the_server_was_lost_is_counted_once(starter):
    """The server is lost while worker 0 is on its way to its next call, having refused two gradients."""

    class Late(Strikes):
        def tick(self):
            rows = rows_of(self.engine)
            if self.at is None and rows and rows[-1].outcome == "refused":
                self.at = self.engine.updates
                raise ServerLostError(SILENT)
            return False

    engine = to_its_end(build(starter, Picky(SGD), **bowl(1, quota=16, delay="100ms")), Late(inf))
    assert len(engine.incidents) == 1
    drawn = [r.draw for r in rows_of(engine) if r.outcome != "lost"]  # what was made again has a row that says so
    assert sorted(drawn) == list(range(16))
    assert engine.samples == 16


# -- gradients that a worker keeps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_gradients_kept_over_a_resume_have_their_rows(starter):
    """Ends before they are pushed."""
    rule = lambda: solver("fedbuff", steps=4, K=1, lr=0.05)  # noqa: E731

    class Until(Stop):
        saved = None

        def tick(self):
            tensors = {}
            plain = self.engine.save(tensors)
            if plain["accounts"]["draws"][0] % 4:
                self.saved = json.dumps(plain), tensors, list(self.engine.rows)
            return self.saved is not None

    until = Until()
    first = build(starter, rule(), **bowl(1, delay="30ms"))
    try:
        first.run(until.watch(first))
    finally:
        first.close()
    text, tensors, rows = until.saved
    engine = build(starter, rule(), **bowl(1, delay="3s"))
    engine.restore(json.loads(text), tensors)
    to_its_end(engine, Stop(ticks=1))
    check_books(Case("fedbuff", workers=1), [*(Row(*r) for r in rows), *rows_of(engine)], drawn_by(engine))


# -- the work clock of workers after a resume, or a lost server -------------------------------------------------------


def alone(rule, quota=24):
    feed = Feed(None, batch=1, workers=1, seed=7)
    return simulated(rule, workers=1, task=Bowl(), feed=feed, seed=7, updates=inf, samples_per_worker=quota)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("on processes", "hogwild"),
        ("on processes", "all-to-all"),
        ("on threads", "all-to-all"),
        ("on threads", "local-sgd"),
        ("on threads", "easgd"),
    ],
)
def test_a_schedule_goes_on_where_it_was_after_a_resume(starter, name):
    saves = SavesOnce(9, ends=True)
    first = build(starter, scheduled(name), **bowl(1, quota=24, delay="5ms"))
    try:
        first.run(saves.watch(first))
    finally:
        first.close()
    text, tensors, *_ = saves.saved
    engine = build(starter, scheduled(name), **bowl(1, quota=24))
    engine.restore(json.loads(text), tensors)
    to_its_end(engine, Stop())
    assert torch.equal(engine.x, alone(scheduled(name)).point.x)


def test_a_schedule_goes_on_where_it_was_after_a_lost_server():
    """Elastic averaging: what is made again is not counted twice."""

    class Late(Strikes):
        def tick(self):
            if self.at is None and self.engine.updates > 5:
                self.at = self.engine.updates
                raise ServerLostError(SILENT)
            return False

    def rule():
        return scheduled("easgd", alpha=0.2, period=4)

    engine = to_its_end(build(None, rule(), **bowl(1, quota=48, delay="10ms")), Late(inf))
    assert len(engine.incidents) == 1
    assert torch.equal(engine.x, alone(rule(), 48).point.x)


# -- a server that goes before everybody has come ---------------------------------------------------------------------


@pytest.mark.parametrize("on_loss", ["restart", "leave out"])
def test_a_server_that_is_lost_while_workers_arrive(monkeypatch, on_loss):
    welcome, came = Company.welcome, []

    def dies(self, worker):
        welcome(self, worker)
        came.append(worker)
        if len(came) == 1:
            self._hub.die()

    monkeypatch.setattr(Company, "welcome", dies)
    with within(60):
        engine = run(None, solver("sync", lr=0.05), **bowl(3, quota=8, on_loss=on_loss), updates=inf)
    sizes = [sum(r.version_applied == v for r in rows_of(engine) if r.applied) for v in range(8)]
    assert sizes == [3] * 8


# -- an error of the server while it is asked -------------------------------------------------------------------------


class Unsavable(ASGD):
    def save_server(self, s):
        raise ValueError("this state cannot be saved")


@pytest.mark.parametrize("place", ON_ONE_MACHINE)
def test_an_error_of_the_server_while_it_is_asked_is_said(starter):
    """It is no lost server: another one will fail as well."""
    saves = SavesOnce(5, ends=False)
    engine = build(starter, Unsavable(SGD), **bowl(2, restarts=2))
    try:
        with within(60), pytest.raises(RunError, match="this state cannot be saved"):
            engine.run(saves.watch(engine))
    finally:
        engine.close()


# -- messages by hand: a server, and workers that we play -------------------------------------------------------------


def played(rule, workers):
    """A server's loop with a hub of threads, and its control's inbox."""
    engine = build(None, rule, **bowl(workers))
    site = engine.processes.site
    control = Inbox()
    hub = ThreadHub(site, control)
    site.board.alive[:] = 1
    for i in range(workers):
        hub.ports[i] = ThreadPort(site, i, hub)
        hub.ports[i].running = False
        hub.inbox.put(Came(i, "begins"))
    server = server_loop.ServerLoop(site, hub, None, 1)
    server.attendance.obey(m.Go(inf, inf, inf, inf))
    server._assemble()
    return engine, server, hub


def test_a_letter_that_crosses_an_idle_worker_s_word_is_not_lost():
    """Worker 1 has been sent a letter when it says that it waits for one: it does not wait, and will go on.

    A checkpoint must not take it for still. Here it reads the letter, posts one of its own, and only then hears that
    it is to save itself; worker 0, which rests, has saved itself by then without that letter.
    """
    engine, server, hub = played(solver("sgp", lr=0.05), 2)
    box = hub.ports
    server.see_to(Said(0, m.Post([1], "a letter", 0)))  # forwarded to worker 1,
    server.see_to(Said(1, m.WaitsForPeer(0)))  # whose word was under way
    server.board.rest[0] = 1
    server.see_to(Said(0, m.Resting()))
    engine.close()
    assert box[1].inbox.get(0.0) is not None
    assert not all(peer.still for peer in server.peers.values()), "worker 1 has a letter to read, and is not still"


def test_what_an_earlier_life_was_put_off_with_is_void():
    """Worker 1 calls during a rest, is lost, and is back before what was put off is seen to."""
    engine, server, hub = played(solver("asgd", lr=0.05), 2)
    hub.announcements.clear()
    server.board.rest[0] = 1
    g = Gradient(torch.zeros(8, dtype=torch.float64), 1.0, 1, at=engine.initial.x, version=0, source=1, draw=0)
    server.board.draws[1] = 1
    server.see_to(Said(1, m.Called(g, 0.0, 0, [])))
    server.see_to(WentAway(1))
    hub.ports[1] = ThreadPort(server.site, 1, hub)
    server.see_to(Came(1, "joins"))
    server.board.rest[0] = 0
    server.go_on()
    engine.close()
    rows = [r for t in hub.committed for r in t.rows if Row(*r).draw == 0]
    assert [Row(*r).outcome for r in rows] == ["lost"]
