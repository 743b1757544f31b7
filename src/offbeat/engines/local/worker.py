"""A worker process: runs the solver's rounds and carries out what they ask for."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from offbeat.core.effects import (
    AllReduce,
    Applied,
    Batch,
    Call,
    Grad,
    Gradient,
    Lock,
    Mix,
    Received,
    Send,
    SharedAdd,
    SharedRead,
    Stepped,
    Stop,
    Unlock,
    Wait,
)
from offbeat.core.reduction import payload_bytes
from offbeat.core.seeds import Draws, key64
from offbeat.core.solver import Round
from offbeat.core.task import Point
from offbeat.engines.local import ring
from offbeat.engines.local.books import distance
from offbeat.engines.local.exchange import Mixing, Post, SharedVector, Sums
from offbeat.engines.local.setup import Site
from offbeat.engines.local.wire import Channel, Closed, Known, Mail


class Leave(Exception):  # noqa: N818 - nothing went wrong
    """The worker is done for good."""


class Worker:
    """One life of one worker. It ends when its rule or its quota says so, or when the server is gone."""

    def __init__(self, site: Site, rank: int, life: int, channel: Channel) -> None:
        self.site, self.rank, self.life, self.channel = site, rank, life, channel
        self.arena, self.solver, self.clock = site.arena, site.solver, site.clock
        self.mail = Mail(site.codec, site.arena)
        self.known: Known = {"x0": site.initial.x}
        self.state: Any = None
        self.gradients = 0  # of this life
        self._works: list[int] = []  # the work clock of each gradient since the last call
        self.buffers = site.initial.buffers
        if life > 1 and self.arena.samples[rank]:  # its statistics outlive it
            self.buffers = self.arena.published_buffers(rank, site.initial.buffers)
        draws = enumerate(site.cluster.delays_of(rank))
        position = int(self.arena.draws[rank])
        self._delays = [
            Draws(d.sample, seed=site.seed, stream=f"delay{k}", source=rank, position=position) for k, d in draws
        ]
        site.feed.draws[rank] = position
        self._handlers: dict[type, Callable[[Any], Any]] = {
            Grad: self._grad,
            Batch: self._batch,
            Call: self._call,
            Applied: self.announce,
            Stepped: self.announce,
            Stop: self._stop,
        }
        self._shown: Any = None  # the parameters that were last published
        self._connect()

    def _connect(self) -> None:
        """What the solver asks for beyond gradients and the server."""
        vector, sums, self.post = SharedVector(self), Sums(self), Post(self)
        asks = self.solver.asks
        self.mixing = Mixing(self) if Mix in asks else None
        self._sums = sums
        self._messages = Send in asks
        self._handlers |= {
            SharedRead: vector.read,
            SharedAdd: vector.add,
            Lock: vector.lock,
            Unlock: vector.unlock,
            AllReduce: sums.reduce,
            Send: self.post.send,
            Wait: self.post.wait,
        }
        if self.mixing is not None:
            self._handlers[Mix] = self.mixing.mix

    def run(self, x0: Any) -> None:
        """Rounds without end. `x0` is None for a worker that comes later and has to ask."""
        handlers = self._handlers
        self.await_("start")
        self.state = self.solver.init_worker(self.rank, x0, self.site.world)
        try:
            while True:
                round, answer = self.solver.round(self.state), None
                while True:
                    try:
                        effect = self._step(round, answer)
                    except StopIteration:
                        break
                    answer = handlers[type(effect)](effect)
        except Leave:
            self.channel.send(("left",))
        except Closed:
            pass  # the server is gone, and with it the run

    def _step(self, round: Round, answer: Any) -> Any:
        """Lets the rule run to its next request: alone, and then its parameters are there for all to see."""
        if self.mixing is not None:
            with self.mixing.lock:
                self.mixing.fetch()
                before = self.state.x
                try:
                    effect = round.send(answer)
                finally:
                    self.mixing.store(before)
        else:
            effect = round.send(answer)
        if self.site.shows:
            self._publish()
        return effect

    def _publish(self) -> None:
        x = self.state.x if self.site.shows else None
        if x is not self._shown:
            self._shown = x
            self._show()

    def _show(self) -> None:
        memory = getattr(self.state, "memory", None) or {}
        numbers = {k: v for k, v in memory.items() if isinstance(v, int | float)}
        self.arena.publish(self.rank, self._shown, numbers, self.buffers)

    # -- gradients ----------------------------------------------------------------------------------------------

    def _batch(self, effect: Batch) -> None:
        """Its data are at hand; what came from peers is taken in before the rule reads its point."""
        while self._messages and self.hear(0):
            pass

    def _grad(self, effect: Grad) -> Gradient | None:
        site, arena, i = self.site, self.arena, self.rank
        quota = site.options.quota
        if quota is not None and arena.samples[i] >= quota:
            raise Leave
        started = self._begin_job(effect)
        source, draw = int(arena.job_source[i]), int(arena.job_draw[i])
        delay = sum(d.next() for d in self._delays)
        if delay > 0:
            self._sleep_until(started + delay)
        begun = self.clock.now()
        point = Point(effect.at, self.buffers)
        g = site.task.gradient(point, site.feed.indices(source, draw), key64(site.seed, "model", source, draw))
        g.started, g.computed = started, self.clock.now()
        arena.job[i] = 0  # before its seconds are charged: whoever looks now must not count them twice
        arena.delayed[i] += begun - started
        arena.computing[i] += g.computed - begun
        g.at, g.version, g.source, g.draw = effect.at, effect.version, source, draw
        while self._messages and self.hear(0):  # what came in the meantime
            pass
        g.work = max(int(arena.work[0]), int(arena.announced.sum()))
        if self.solver.schedule is not None:  # a replay has to know
            self._works.append(g.work)
        self.buffers, g.buffers = g.buffers, None
        if self.buffers is not None:
            self._show()
        self.gradients += 1
        if not g.loss <= arena.loss_limit[0]:
            self.channel.send(("loss", g.loss))
            self.await_("verdict")
        if arena.cancel[i] == arena.replies[i] + 1:
            self.channel.send(("cancelled",))
            arena.job[i] = 0
            return None
        arena.samples[i] += g.samples
        return g

    def _begin_job(self, effect: Grad) -> float:
        """What the run's books need to know of a gradient that may never be finished."""
        site, arena, i = self.site, self.arena, self.rank
        source, draw = site.feed.take(i)
        started = self.clock.now()
        arena.job_version[i] = -1 if effect.version is None else effect.version
        arena.job_source[i], arena.job_draw[i], arena.job_started[i] = source, draw, started
        arena.draws[i] = site.feed.draws[i]
        arena.job[i] = 1
        if site.fault("kill", self.gradients, i, self.life):
            os.kill(os.getpid(), signal.SIGKILL)
        if site.fault("raise", self.gradients, i, self.life):
            raise RuntimeError("injected")
        while site.fault("hang", self.gradients, i, self.life):
            signal.pause()
        return started

    def _sleep_until(self, due: float) -> None:
        """By the run's clock, which may stand still meanwhile."""
        while (left := due - self.clock.now()) > 0:
            time.sleep(left)

    # -- the server ---------------------------------------------------------------------------------------------

    def _call(self, effect: Call) -> Any:
        arena, i = self.arena, self.rank
        begun = self.clock.now()
        tree, parts = self.mail.pack(effect.payload, arena.push_slot(i), self.known)
        sent = self.clock.now()
        works, self._works = self._works, []
        self.channel.send(("call", tree, parts, sent, payload_bytes(effect.payload), works))
        arena.job[i] = 0
        _, tree, parts = self.await_("reply")
        received = self.clock.now()
        value, self.known = self.mail.unpack_reply(tree, parts, arena.pull_slot(i), self.known)
        arena.replies[i] += 1
        arena.communicating[i] += (sent - begun) + (self.clock.now() - received)
        return value

    def await_(self, kind: str) -> list[Any]:
        """The server's next message of this kind. Without limit: a server that dies is noticed at once, and it is
        the server that finds out who hangs."""
        while True:
            message = self.channel.receive()
            assert message is not None
            if message[0] == kind:
                return list(message)
            self._other(message)

    def hear(self, timeout_seconds: float | None) -> bool:
        """Sees to one message that nobody waits for, if there is one in time."""
        message = self.channel.receive(timeout_seconds)
        if message is None:
            return False
        self._other(message)
        return True

    def _other(self, message: tuple[Any, ...]) -> None:
        kind, *details = message
        if kind == "message":
            self.post.receive(*details)
        elif kind == "sum":
            self._sums.sum_slice(*details)
        elif kind == "sum rows":
            self._sums.sum_rows(*details)
        elif kind == "gone":
            self.post.gone.add(details[0])
        elif kind == "back":
            self.post.gone.discard(details[0])
        else:
            raise TypeError(f"worker {self.rank} was sent {kind!r}")

    # -- announcements ------------------------------------------------------------------------------------------

    def announce(self, effect: Applied | Received | Stepped) -> None:
        arena, i = self.arena, self.rank
        if type(effect) is Stepped:
            record = ring.Record(ring.STEP, self.clock.now())
        elif type(effect) is Received:
            g = effect.gradient
            record = ring.of_gradient(ring.RECEIVED_ROW, self.clock.now(), g, None, effect.staleness, None)
        elif type(effect) is Applied:
            g, gap = effect.gradient, None
            if self.site.options.gap and effect.x is not None:
                gap = distance(effect.x, g.at)
            seen = (effect.version, effect.staleness, gap)
            record = ring.of_gradient(ring.APPLIED_ROW, self.clock.now(), g, *seen)
            arena.announced[i] += g.samples
            arena.job[i] = 0
        else:
            raise TypeError(f"a rule yielded {effect!r}, which is no effect that belongs there")
        ring.write(arena, i, record)

    def _stop(self, effect: Stop) -> NoReturn:
        raise Leave
