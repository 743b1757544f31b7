"""A shard of the server at work: it takes parts of vectors from workers, and does with them what the server says."""

import os
import signal
from collections import defaultdict
from functools import partial
from threading import Event
from typing import Any

from torch import Tensor

from offbeat.core.parted import cuts
from offbeat.engines.ray import shard_messages as s
from offbeat.engines.ray.frames import Frames, WrongMessageError
from offbeat.engines.ray.shard_vectors import ShardVectors, is_finite
from offbeat.engines.ray.sockets import ZmqPeer, ZmqServer, wait_for_either
from offbeat.engines.ray.wire import Letters, shard_secret
from offbeat.engines.ray.worker_lines import WorkerLine, WorkerLines
from offbeat.engines.real.blame import told
from offbeat.engines.real.mail import Mail
from offbeat.engines.real.site import Site

_LONG = 0.5  # seconds between two looks at whether it is over


class ShardLoop:
    """One shard of a run. Only the server's word moves it on: what workers send is laid by until it is called for."""

    def __init__(
        self,
        site: Site,
        like: Tensor,
        place: tuple[int, int],
        workers: ZmqServer,
        server: ZmqPeer,
        letters: Letters,
        secret: bytes,
        life: int,
        over: Event,
    ) -> None:
        """`place`: which shard of how many; `life`: the server's."""
        shard, count = place
        self._site, self._life, self._steps, self._first = site, life, 0, shard == 0
        part = cuts(like.numel(), count)[shard]
        self._kind = ("x", 0, str(like.dtype).removeprefix("torch."), (part.stop - part.start,))
        self._workers, self._server, self._letters, self._over = workers, server, letters, over
        self._frames = Frames()
        own = shard_secret(secret, shard, life)
        mail = Mail(site.codec, self._frames)
        self._lines = WorkerLines(own, site.cluster.workers, None, mail, s.HeardFromWorker)
        self._work = ShardVectors(site.solver, site.world, site.codec)
        self._pushed: dict[tuple[int, int, int], Tensor] = {}  # by worker, life and number, as they came
        self._early: defaultdict[tuple[int, int], list[tuple[int, Tensor]]] = defaultdict(list)  # for whom is not here

    def run(self) -> None:
        self._say(s.ShardReady())
        try:
            while not self._over.is_set():
                wait_for_either(self._workers, self._server, _LONG)
                while (found := self._workers.receive(0.0)) is not None:
                    self._hear(*found)
                while (frames := self._server.receive(0.0)) is not None:
                    opened = self._letters.open(frames)
                    if opened is not None:
                        self._obey(opened[1], opened[2])
        except Exception as e:
            self._say(s.ShardFailed(told(e)))
            self._over.wait()

    # -- workers ------------------------------------------------------------------------------------------------

    def _hear(self, identity: bytes, frames: list[Any]) -> None:
        try:
            line = self._lines.of(identity, frames)
            opened = line.letters.open(frames)
            if opened is None:
                return
            _, message, tensors = opened
            if isinstance(message, s.WorkerReady):
                self._welcome(line)
            else:
                x = self._frames.read(tensors, [self._kind])["x"]
                self._pushed[line.rank, line.life, message.number] = x
                self._say(s.HavePart(line.rank, line.life, message.number, is_finite(x)))
        except WrongMessageError as e:
            self._say(s.PartRefused(str(e)))

    def _welcome(self, line: WorkerLine) -> None:
        line.came = True
        for number, x in self._early.pop((line.rank, line.life), ()):
            self._give(line, number, x)

    def _give(self, line: WorkerLine, number: int, x: Tensor) -> None:
        frames: list[Any] = []
        self._frames.write(frames, {"x": x})
        line.letters.post(partial(self._workers.send, line.identity), s.VectorPart(number), frames)

    # -- the server ---------------------------------------------------------------------------------------------

    def _obey(self, message: s.HeardByShard, tensors: list[Any]) -> None:
        match message:
            case s.Instructions(several):
                for instruction in several:
                    self._carry_out(instruction)
            case s.PutVector(out):
                self._work.vectors[out] = self._frames.read(tensors, [self._kind])["x"]
            case s.LoadOptimizer(tree, vectors, parts):
                self._work.load_optimizer(tree, vectors, self._frames.read(tensors, parts))

    def _carry_out(self, instruction: s.Instruction) -> None:
        vectors = self._work.vectors
        match instruction:
            case s.TakePush(out, worker, life, part):
                vectors[out] = self._pushed.pop((worker, life, part))
            case s.GivePart(vector, worker, life, number):
                line = self._lines.by_rank.get(worker)
                if line is not None and line.life == life and line.came:
                    self._give(line, number, vectors[vector])
                elif line is None or line.life < life:
                    self._early[worker, life].append((number, vectors[vector]))
            case s.ForgetWorker(worker, life):
                self._forget(worker, life)
            case s.Step():
                self._work.carry_out(instruction)
                self._strike()
            case s.FetchVector(vector):
                frames: list[Any] = []
                self._frames.write(frames, {"x": vectors[vector]})
                self._say(s.Fetched(vector), frames)
            case s.TellOptimizer(first):
                tree, numbers, others = self._work.optimizer_state(first)
                beside: list[Any] = []
                self._say(s.OptimizerTold(tree, numbers, self._frames.write(beside, others)), beside)
            case _:
                self._work.carry_out(instruction)

    def _strike(self) -> None:
        """For tests: what is to befall the first shard after so many steps."""
        self._steps += 1
        if self._first and self._site.server_fault("kill shard", self._steps, self._life):
            os.kill(os.getpid(), signal.SIGKILL)

    def _forget(self, worker: int, life: int) -> None:
        """What it had sent and nobody called for."""
        self._early.pop((worker, life), None)
        line = self._lines.by_rank.get(worker)
        if line is not None and line.life == life:
            self._lines.close(worker)
        self._pushed = {key: x for key, x in self._pushed.items() if key[:2] != (worker, life)}

    def _say(self, message: s.HeardFromShard, frames: list[Any] | None = None) -> None:
        self._letters.post(self._server.send, message, frames or [])
