"""A worker's loop: runs the solver's rounds and carries out what they ask for."""

import time
from collections.abc import Callable
from typing import Any, NoReturn

from offbeat.core.effects import AllReduce, Await, Batch, Call, Grad, Gradient, Push, Reduced, Send, Stop, Wait
from offbeat.core.seeds import Draws
from offbeat.core.solver import Shown
from offbeat.engines.real import messages as m
from offbeat.engines.real.calls import Calls
from offbeat.engines.real.checkpoint import SavedWorker, load_worker, save_worker
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Closed, Port
from offbeat.engines.running.gradients import compute, stamp
from offbeat.engines.running.ledger import Ledger
from offbeat.engines.running.rounds import BETWEEN, Rounds


class Leave(Exception):  # noqa: N818 - nothing went wrong
    """The worker is done for good."""


class WorkerLoop:
    """One life of one worker. It ends when its rule or its quota says so, or when the server is gone."""

    def __init__(self, site: Site, rank: int, life: int, port: Port) -> None:
        self.site, self.rank, self.life, self.port = site, rank, life, port
        self.board, self.solver, self.clock = site.board, site.solver, site.clock
        self.rounds: Rounds | None = None
        self.round_number = 0  # of this life, from 1
        self.gradients = 0  # of this life
        self.ledger = Ledger(gap=site.options.gap)
        self.buffers = site.initial.buffers
        if life > 1 and self.board.samples[rank]:  # its statistics outlive it
            self.buffers = self.board.published_buffers(rank, site.initial.buffers)
        self.calls = Calls(site, rank, port, self._hear)
        self._gone: set[int] = set()
        self._letters = 0  # messages of peers that have come,
        self._told = 0  # and all that it was told of peers
        self._messages = Send in self.solver.asks
        self._shown: Shown | None = None  # what was last published
        self._handlers: dict[type, Callable[[Any], Any]] = {
            Grad: self._grad,
            Batch: self._batch,
            Call: self.calls.call,
            Push: self.calls.push,
            Await: self.calls.wait,
            AllReduce: self._reduce,
            Send: self._send,
            Wait: self._wait,
            Stop: self._stop,
            **port.handlers(self),
        }
        self.board.replies[rank] = self.board.cancel[rank] = 0

    # -- rounds -------------------------------------------------------------------------------------------------

    def run(self, x0: Any, saved: SavedWorker | None = None) -> None:
        """Rounds without end. `x0` is None for a worker that comes later and has to ask."""
        try:
            effect = self._begin(x0) if saved is None else self._resume(saved)
            self._await(m.Start)
            if saved is not None:
                effect = self.calls.go_on(saved, effect, self._answer)
            while True:
                if effect is BETWEEN:
                    self._between_rounds()
                    effect = self._step(self._begin_round)
                else:
                    effect = self._answer(self._carry_out(effect))
        except Leave:
            self.port.send(m.Left())
        except Closed:
            pass  # the server is gone, and with it the run

    def _begin(self, x0: Any) -> Any:
        site = self.site
        site.feed.draws[self.rank] = int(self.board.draws[self.rank])
        self._draw_delays()
        state = self.solver.init_worker(self.rank, x0, site.world)
        self.rounds = self.calls.rounds = Rounds(self.solver, state, site.codec, pauses=True)
        return self._step(self._begin_round)

    def _resume(self, saved: SavedWorker) -> Any:
        """Runs its round again against what it was told."""
        site = self.site
        site.feed.draws[self.rank] = saved.draws
        self._draw_delays()
        start, told, self.buffers = load_worker(site.codec, self.solver, site.world, saved)
        self.calls.resume(saved)
        self.rounds = self.calls.rounds = rounds = Rounds(self.solver, start, site.codec, pauses=True)
        return self._step(lambda: rounds.rerun(start, told))

    def _draw_delays(self) -> None:
        rank, position = self.rank, self.site.feed.draws[self.rank]
        self._delays = [
            Draws(d.sample, seed=self.site.seed, stream=f"delay{k}", source=rank, position=position)
            for k, d in enumerate(self.site.cluster.delays_of(rank))
        ]

    def _begin_round(self) -> Any:
        assert self.rounds is not None
        self.round_number += 1
        return self.rounds.begin()

    def _answer(self, value: Any) -> Any:
        rounds = self.rounds
        assert rounds is not None
        return self._step(lambda: rounds.answer(value))

    def _step(self, go: Callable[[], Any]) -> Any:
        """Lets the rule run to its next request; then its parameters are there for all to see."""
        effect = self.port.around(go)
        if self.solver.shows_workers:
            self._publish()
        return effect

    def _carry_out(self, effect: Any) -> Any:
        handler = self._handlers.get(type(effect))
        if handler is not None:
            return handler(effect)
        self.announce(effect)
        return None

    def _between_rounds(self) -> None:
        """Rests while a checkpoint is taken."""
        self.port.look()
        if self.board.rest[0]:
            self.port.send(m.Resting())
            self._await(m.GoOn)

    def _publish(self) -> None:
        assert self.rounds is not None
        shown = self.solver.shown(self.rounds.state)
        if shown is not None and (self._shown is None or shown.x is not self._shown.x):
            self._shown = shown
            self.board.publish(self.rank, shown, self.buffers)

    # -- gradients ----------------------------------------------------------------------------------------------

    def _batch(self, effect: Batch) -> None:
        """Its data are at hand; what came from peers is taken in before the rule reads its point."""
        self._hear_all()

    def _grad(self, effect: Grad) -> Gradient | None:
        site, board, i = self.site, self.board, self.rank
        if site.options.quota is not None and board.samples[i] >= site.options.quota:
            assert self.rounds is not None
            if self.rounds.pushed is not None:  # it leaves when its last message is answered
                return None
            raise Leave
        source, draw, started = self._begin_job(effect)
        ready = self.clock.now()
        delay = sum(d.next() for d in self._delays)
        if delay > 0:
            self._sleep_until(started + delay)
        begun = self.clock.now()
        g = compute(site.task, site.feed, site.seed, effect.at, self.buffers, source, draw)
        computed = self.clock.now()
        board.job[i] = 0  # before its seconds are charged: whoever looks now must not count them twice
        board.delayed[i] += begun - ready
        board.computing[i] += computed - begun
        self.port.look()
        self._hear_all()  # what came in the meantime
        work = max(int(board.work[0]), int(board.announced.sum()))
        where = (effect.at, effect.version, source, draw)
        buffers = stamp(g, *where, started=started, computed=computed, work=work)
        self.gradients += 1
        if not g.loss <= board.loss_limit[0]:
            self.port.send(m.Suspicious(g.loss))
            self._await(m.LossSeen)
        self.buffers = buffers
        if self.solver.schedule is not None:  # a replay has to know
            self.calls.works.append(work)
        if buffers is not None:
            board.publish(i, self._shown, buffers)
        if board.cancel[i] == board.replies[i] + 1:
            self.port.send(m.GaveUp())
            return None
        board.samples[i] += g.samples
        return g

    def _begin_job(self, effect: Grad) -> tuple[int, int, float]:
        """What the run's record needs to know of a gradient that may never be finished."""
        site, board, i = self.site, self.board, self.rank
        source, draw = site.feed.take(i)
        started = self.clock.now()
        board.job_version[i] = -1 if effect.version is None else effect.version
        board.job_source[i], board.job_draw[i], board.job_started[i] = source, draw, started
        board.draws[i] = site.feed.draws[i]
        board.job[i] = 1
        self.port.began()
        if site.fault("kill", self.gradients, i, self.life):
            self.port.die()
        if site.fault("raise", self.gradients, i, self.life):
            raise RuntimeError("injected")
        if site.fault("hang", self.gradients, i, self.life):
            self.port.hang()
        return source, draw, started

    def _sleep_until(self, due: float) -> None:
        """By the run's clock, which may stand still meanwhile."""
        while (left := due - self.clock.now()) > 0:
            time.sleep(left)

    # -- the server ---------------------------------------------------------------------------------------------

    def _await(self, kind: type) -> Any:
        """The server's next message of this kind. Without limit: a server that dies is noticed at once, and it is
        the server that finds out who hangs."""
        while True:
            message = self.port.receive(None)
            if type(message) is kind:
                return message
            self._see_to(message)

    def _hear_all(self) -> None:
        while self._messages and self._hear(0):
            pass

    def _hear(self, timeout_seconds: float | None) -> bool:
        """Sees to one message that nobody waits for, if there is one in time."""
        message = self.port.receive(timeout_seconds)
        if message is None:
            return False
        self._see_to(message)
        return True

    def _see_to(self, message: Any) -> None:
        match message:
            case m.Letter(sender, letter):
                self._letters, self._told = self._letters + 1, self._told + 1
                assert self.rounds is not None
                for effect in self.rounds.hear(sender, letter):
                    self.announce(effect)
            case m.Gone(worker):
                self._gone.add(worker)
                self._told += 1
            case m.Back(worker):
                self._gone.discard(worker)
                self._told += 1
            case m.Answered():
                self.calls.answered(message)
            case m.SaveYourself():
                self._save()
            case m.Holds(first, shares):
                self.site.feed.shares.hold(self.rank, first, shares)
            case m.Dismissed():
                raise Leave
            case _:
                raise TypeError(f"worker {self.rank} was sent {message!r}")

    def _save(self) -> None:
        """What it needs to go on from here. A gradient that its rule was not given yet is computed again then."""
        rounds, i = self.rounds, self.rank
        assert rounds is not None
        self.port.catch_up()
        if rounds.pending is BETWEEN:
            rounds.rest()
        draws = self.site.feed.draws[i] - (type(rounds.pending) is Grad)
        saved = save_worker(self.site.codec, rounds, self.buffers)
        saved.draws, saved.samples = draws, int(self.board.samples[i])
        self.calls.save(saved)
        self.port.send(m.WorkerSaved(saved))

    # -- others -------------------------------------------------------------------------------------------------

    def _reduce(self, effect: AllReduce) -> Reduced:
        begun = self.clock.now()
        self.port.reduce(effect)
        self.board.communicating[self.rank] += self.clock.now() - begun
        met = self._await(m.Met)
        begun = self.clock.now()
        reduced = Reduced(self.port.mean(met), met.weight, tuple(met.members), met.work)
        self.board.communicating[self.rank] += self.clock.now() - begun
        return reduced

    def _send(self, effect: Send) -> tuple[int, ...]:
        return self.port.post(effect, self._hear)

    def _wait(self, effect: Wait) -> bool:
        before = self._letters
        while self._hear(0):
            pass
        while self._letters == before:
            if effect.peer in self._gone:
                return False
            self.port.send(m.WaitsForPeer(self._told))
            self._hear(None)
        return True

    def announce(self, effect: Any) -> None:
        """What the rule says it did: rows, through the port."""
        ledger = self.ledger
        ledger.announce(effect, self.clock.now())
        self.board.announced[self.rank] += ledger.samples
        self.port.announce(ledger.rows, ledger.updates)
        ledger.rows, ledger.updates, ledger.samples = [], 0, 0

    def _stop(self, effect: Stop) -> NoReturn:
        raise Leave
