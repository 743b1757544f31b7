"""A worker process: runs the solver's rounds and carries out what they ask for."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any, NoReturn

from torch import Tensor

from offbeat.core.effects import Applied, Call, Grad, Gradient, Stepped, Stop
from offbeat.core.reduction import payload_bytes
from offbeat.core.seeds import Draws, key64
from offbeat.core.task import Point
from offbeat.engines.local.setup import Site
from offbeat.engines.local.wire import Channel, Closed, Mail


class Leave(Exception):  # noqa: N818 - nothing went wrong
    """The worker is done for good."""


class Worker:
    """One life of one worker. It ends when its rule or its quota says so, or when the server is gone."""

    def __init__(self, site: Site, rank: int, life: int, channel: Channel) -> None:
        self.site, self.rank, self.life, self.channel = site, rank, life, channel
        self.arena, self.solver, self.clock = site.arena, site.solver, site.clock
        self.mail = Mail(site.codec, site.arena)
        self.known: dict[str, Tensor] = {"x0": site.initial.x}
        self.state: Any = None
        self.gradients = 0  # of this life
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
            Call: self._call,
            Applied: self._applied,
            Stepped: self._stepped,
            Stop: self._stop,
        }

    def run(self, x0: Any) -> None:
        """Rounds without end. `x0` is None for a worker that comes later and has to ask."""
        handlers = self._handlers
        self.state = self.solver.init_worker(self.rank, x0, self.site.world)
        try:
            while True:
                round, answer = self.solver.round(self.state), None
                while True:
                    try:
                        effect = round.send(answer)
                    except StopIteration:
                        break
                    answer = handlers[type(effect)](effect)
        except Leave:
            self.channel.send(("left",))
        except Closed:
            pass  # the server is gone, and with it the run

    # -- gradients ----------------------------------------------------------------------------------------------

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
        arena.delayed[i] += begun - started
        arena.computing[i] += g.computed - begun
        g.at, g.version, g.source, g.draw = effect.at, effect.version, source, draw
        g.work = int(arena.work[0])
        self.buffers, g.buffers = g.buffers, None
        if self.buffers is not None:
            arena.publish(i, None, self.buffers)
        self.gradients += 1
        if not g.loss <= arena.loss_limit[0]:
            self.channel.send(("loss", g.loss))
            self._await("verdict")
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
        self.channel.send(("call", tree, parts, sent, payload_bytes(effect.payload)))
        arena.job[i] = 0
        _, tree, parts = self._await("reply")
        received = self.clock.now()
        tensors = arena.read(arena.pull_slot(i), parts)
        self.known = {"x0": self.site.initial.x, **{f"r.{name}": t for name, t in tensors.items()}}
        value = self.site.codec.decode(tree, tensors)
        arena.replies[i] += 1
        arena.communicating[i] += (sent - begun) + (self.clock.now() - received)
        return value

    def _await(self, kind: str) -> tuple[Any, ...]:
        """The server's next message of this kind. Without limit: a server that dies is noticed at once, and it is
        the server that finds out who hangs."""
        while True:
            message = self.channel.receive()
            assert message is not None
            if message[0] == kind:
                return message
            self._other(message)

    def _other(self, message: tuple[Any, ...]) -> None:
        raise TypeError(f"worker {self.rank} was sent {message[0]!r}")

    # -- announcements ------------------------------------------------------------------------------------------

    def _applied(self, effect: Applied) -> None:
        g = effect.gradient
        gap = None
        if self.site.options.gap and effect.x is not None:
            gap = float((effect.x - g.at).norm())
        row = (effect.worker, g.source, g.draw, g.version, effect.version, gap, g.loss, g.samples)
        self.channel.send(("applied", self.clock.now(), *row, g.started, g.computed, g.norm, g.correct, g.work))
        self.arena.job[self.rank] = 0

    def _stepped(self, effect: Stepped) -> None:
        self.channel.send(("stepped",))

    def _stop(self, effect: Stop) -> NoReturn:
        raise Leave
