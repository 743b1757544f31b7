"""The local engine: the same rules on real processes of one machine, on the wall clock.

This process starts the others, looks on, evaluates and saves. A nursery forks the server and the workers:

    this process --- cradle (imports torch) --- nursery (makes the task, forks)
         |                                          |-- server         the rule's server, in order of arrival; the books
         '------------------------------------------|-- worker 0 ... W - 1
"""

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any, ClassVar

from offbeat.core.effects import (
    AllReduce,
    Applied,
    Batch,
    Call,
    Grad,
    Lock,
    Mix,
    Send,
    SharedAdd,
    SharedRead,
    Stepped,
    Stop,
    Unlock,
    Wait,
)
from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.core.feed import Feed
from offbeat.core.solver import Solver, World
from offbeat.core.sparse import dense
from offbeat.core.task import Point, Task
from offbeat.core.trace import APPLIED, LOST, Row
from offbeat.core.void import Void
from offbeat.engines.cluster import Cluster
from offbeat.engines.engine import Watcher
from offbeat.engines.local import memory
from offbeat.engines.local.cradle import Cradle, Nursling
from offbeat.engines.local.exchange import lost_share
from offbeat.engines.local.setup import Options, Recipe, Setup, check_cluster, world_of
from offbeat.engines.local.wire import Channel, Closed, LocalError
from offbeat.engines.pool import Pool
from offbeat.engines.slot import mean_buffers

_CONSTRUCTION_SECONDS = 300.0  # for importing torch and making the task


GONE, SILENT = "was lost", "did not answer"


class ServerLostError(LocalError):
    """The server has ended, or is silent; a run goes on with another."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the server {how}")
        self.how = how


class Local:
    """One real run: construct (or restore), then `run()`."""

    asks: ClassVar[frozenset[type]] = frozenset(
        {Grad, Batch, Call, AllReduce, Send, Wait, Mix, SharedRead, SharedAdd, Lock, Unlock, Applied, Stepped, Stop}
    )
    clock: ClassVar[str] = "wall"

    def __init__(
        self,
        task: Task,
        solver: Solver,
        cluster: Cluster,
        feed: Feed,
        *,
        seed: int,
        threads: int = 0,
        options: Options | None = None,
        recipe: Recipe | None = None,
        cradle: Cradle | None = None,
    ) -> None:
        missing = solver.asks - self.asks
        if missing:
            names = ", ".join(sorted(e.__name__ for e in missing))
            raise ConfigError(f"the local engine cannot run {type(solver).__name__}: it asks for {names}")
        check_cluster(cluster)
        self.task, self.solver, self.cluster, self.feed, self.seed = task, solver, cluster, feed, seed
        self.options = options or Options()
        self.now = 0.0
        self.updates = self.samples = self.samples_applied = self.bytes = 0
        self.queued = self.served = 0.0
        self.next_samples: float = inf
        self.next_updates: float = inf
        self.loss_limit = -inf
        self.deadline = inf
        self.rows: list[tuple[Any, ...]] = []
        self.journal: list[tuple[float, str, int, int]] | None = []
        self.incidents: list[str] = []
        self.lost_updates = 0
        if cluster.compute != Cluster().compute:
            self.incidents.append("cluster.compute is for simulation: gradients took as long as they took")
        self.initial = task.init(seed)
        if isinstance(self.initial.x, Void):
            raise ConfigError(
                f"the local engine computes real gradients and task {task.name!r} has none: use engine=sim"
            )
        self.world = world_of(cluster, task, feed, seed)
        server = solver.init_server(self.initial.x, self.world)
        self._joinable = _can_join(solver, self.initial, self.world)
        self._x: Any = dense(solver.parameters(server, {}))
        self._lr = solver.lr(server, 0)
        self.arena = memory.create(memory.shape_of(cluster.workers, dense(self.initial.x), self.initial.buffers))
        self._setup = Setup(
            solver=solver,
            cluster=cluster,
            feed=feed,
            seed=seed,
            options=self.options,
            task=None if recipe else task,
            recipe=recipe,
        )
        self.pool = Pool(_nothing, threads)
        self._cradle = cradle
        self._own: Cradle | None = None  # one that nobody handed us
        self._nursery: Nursling | None = None
        self._line: Channel | None = None  # to the nursery
        self._server: Channel | None = None
        self._saved: tuple[Any, bytes, dict[str, Any], float] | None = None  # the server's last checkpoint
        self._inbox: deque[tuple[Any, ...]] = deque()
        self._server_life = 1
        self._lives = [0] * cluster.workers
        self._arrived = [0.0] * cluster.workers
        self._present = [0.0] * cluster.workers
        self._alive: set[int] = set()
        self._exits: dict[tuple[str, int], int] = {}
        self._losses = 0

    # -- running ------------------------------------------------------------------------------------------------

    def run(self, watcher: Watcher) -> str:
        """Runs until the watcher, the deadline or the end of work; says which: "watcher", "seconds", "idle"."""
        self._open_nursery()
        self._open_server(joining=self._saved is not None)
        while True:
            try:
                why = self._hear(watcher)
            except ServerLostError as e:
                self._replace_server(e.how)
                continue
            if why is not None:
                return why

    def _hear(self, watcher: Watcher) -> str | None:
        """The server's next message, and what is to be done about it; why the run ends, if it does."""
        message = self._next(self.options.patience_seconds)
        if message is None:
            raise ServerLostError(SILENT)
        kind, *details = message
        if kind == "tick":
            if watcher.tick():
                return self._stop("watcher")
        elif kind == "mark":
            if watcher.mark() or watcher.tick():
                return self._stop("watcher")
            self._go()
        elif kind == "loss":
            if watcher.suspicious(details[0]):
                return self._stop("watcher")
            self._go()
        elif kind == "deadline":
            self.now = self.deadline
            return self._stop("seconds")
        elif kind in ("lost", "left"):
            if self._depart(kind, *details):
                return self._stop("idle")
        elif kind == "join":
            self._start_worker(details[0], joins=True)
        elif kind == "hung":
            self.incidents.append(f"worker {details[0]} was silent for {details[1]:.0f} s and was ended")
        elif kind == "failed":
            raise self._failure(*details)
        elif kind == "closed":
            raise ServerLostError(GONE)
        return None

    def close(self) -> None:
        """Ends every process of the run; the shared memory goes with the last."""
        self.pool.close()
        for channel in (self._server, self._line):
            if channel is not None:
                channel.close()
        self._server = self._line = None
        if self._nursery is not None:
            self._nursery.end()
        if self._own is not None:
            self._own.close()
        self._nursery = self._own = None
        with contextlib.suppress(OSError):
            os.close(self.arena.fd)

    def finish(self) -> None:
        """Closes the books: one row for every gradient still in flight."""
        self._request("finish", "finished")
        for i in self._alive:
            self._present[i] += self.now - self._arrived[i]
            self._arrived[i] = self.now

    # -- what the watcher may ask -------------------------------------------------------------------------------

    @property
    def point(self) -> Point:
        """As of the last time everything stood still for the watcher."""
        x = self._x if self._server is None else self.arena.snapshot.clone()
        like = self.initial.buffers
        owned = [self.arena.published_buffers(i, like) for i in range(len(self._lives)) if self.arena.samples[i] > 0]
        return Point(x, mean_buffers(like, owned))

    @property
    def lr(self) -> float | None:
        if self._server is not None:
            self._lr = self._request("lr", "lr")[0]
        return self._lr

    @property
    def lost_share(self) -> float | None:
        return lost_share(self.arena, self._x)

    @property
    def optimizer_group(self) -> dict[str, Any] | None:
        group: dict[str, Any] | None = self._request("group", "group")[0]
        return group

    def breakdown(self) -> list[dict[str, float]]:
        """Where the seconds of each worker went; waiting is what is left."""
        out = []
        for i in range(self.cluster.workers):
            present = self._presence(i)
            spent = {n: float(getattr(self.arena, n)[i]) for n in ("computing", "delayed", "communicating")}
            if self.arena.job[i]:
                spent["computing"] += max(0.0, self.now - float(self.arena.job_started[i]))
            out.append({"present": present, **spent, "waiting": max(0.0, present - sum(spent.values()))})
        return out

    def _presence(self, i: int) -> float:
        return self._present[i] + (self.now - self._arrived[i] if i in self._alive else 0.0)

    def save(self, tensors: dict[str, Any]) -> Any:
        """The server's state and the counts; workers begin anew from it."""
        tree, blob = self._request("save", "saved")
        counters = {n: getattr(self, n) for n in ("updates", "samples", "samples_applied", "bytes", "queued", "served")}
        self._saved = (tree, blob, counters, self.now)
        from safetensors.torch import load

        tensors.update({f"server.{name}": t for name, t in load(blob).items()})
        accounts = {n: getattr(self.arena, n).tolist() for n in _KEPT}
        kept = {"server": tree, "counters": counters, "now": self.now, "accounts": accounts, "lives": self._lives}
        kept |= {"loss_limit": self.loss_limit, "presence": [self._presence(i) for i in range(len(self._lives))]}
        return {**kept, "incidents": self.incidents, "lost_updates": self.lost_updates}

    def restore(self, encoded: Any, tensors: Mapping[str, Any]) -> None:
        """The inverse of `save`."""
        from safetensors.torch import save

        own = {n.removeprefix("server."): t for n, t in tensors.items() if n.startswith("server.")}
        self._saved = (encoded["server"], save(own), encoded["counters"], encoded["now"])
        self.now, self._lives = encoded["now"], encoded["lives"]
        self.incidents, self.lost_updates = encoded["incidents"], encoded["lost_updates"]
        self.loss_limit, self._present = encoded["loss_limit"], encoded["presence"]
        for name, value in encoded["counters"].items():
            setattr(self, name, value)
        for name, values in encoded["accounts"].items():
            getattr(self.arena, name)[:] = values

    # -- processes ----------------------------------------------------------------------------------------------

    def _open_nursery(self) -> None:
        blob = pickled(self._setup)
        if self._cradle is None:
            self._cradle = self._own = Cradle()
        ours, theirs = Channel.pair()
        self._nursery = self._cradle.nursery(theirs, self.arena.fd)
        theirs.close()
        self._line = ours
        ours.send(("setup", blob, tuple(self.arena.shape)))
        try:
            message = ours.receive(_CONSTRUCTION_SECONDS)
        except Closed:
            raise LocalError("the process that makes the task ended without a word") from None
        if message is None:
            raise LocalError(f"the task {self.task.name!r} was not made within {_CONSTRUCTION_SECONDS:.0f} s")
        if message[0] == "failed":
            raise ConfigError(f"task {self.task.name!r} cannot be made in a worker process: {message[1]}")

    def _open_server(self, *, joining: bool) -> None:
        assert self._line is not None
        ours, theirs = Channel.pair()
        expected = list(range(self.cluster.workers)) if joining else list(self.world.present)
        self.arena.alive[:] = 0
        self.arena.alive[expected] = 1  # nobody who comes first goes on without them
        self._line.send(("server", self._saved, self._server_life), theirs.fileno())
        theirs.close()
        self._server = ours
        self._server_life += 1
        self._inbox.clear()
        for i in expected:
            self._start_worker(i, joins=joining)
        self._go()

    def _start_worker(self, i: int, *, joins: bool) -> None:
        assert self._line is not None
        self._lives[i] += 1
        self._alive.add(i)
        self._arrived[i] = self.now
        self._line.send(("worker", i, self._lives[i], joins))

    def _depart(self, kind: str, i: int, meant: bool, others_join: bool) -> bool:
        """A worker has gone: restarted if it was lost and the options say so. True when nobody is left, or will be."""
        self._alive.discard(i)
        self._present[i] += self.now - self._arrived[i]
        how = self._exit_of("worker", i)
        if kind == "lost" and not meant:
            restart = self.options.on_loss == "restart" and self._joinable and self._losses < self.options.restarts
            self._losses += 1
            self.incidents.append(f"worker {i} was lost ({how}); {'restarted' if restart else 'left out'}")
            if restart:
                self._start_worker(i, joins=True)
        return not self._alive and not others_join

    def _replace_server(self, why: str) -> None:
        """From its last checkpoint, or the beginning; the workers begin anew. Counts what is lost."""
        self._losses += 1
        if self._losses > self.options.restarts:
            raise LocalError(f"the server {why}, and the run has lost {self._losses} processes: giving up")
        assert self._server is not None
        self._server.close()
        reached = int(self.arena.updates[0])
        kept = 0 if self._saved is None else self._saved[2]["updates"]
        self.lost_updates += reached - kept
        how = f" ({self._exit_of('server', -1)})" if why == GONE else ""
        self.incidents.append(
            f"the server {why}{how} after update {reached}; restarted from update {kept}, {reached - kept} lost"
        )
        self._end_children()
        self._forget()
        self._open_server(joining=self._saved is not None)

    def _end_children(self) -> None:
        assert self._line is not None
        self._line.send(("end",))
        while True:
            message = self._line.receive(self.options.patience_seconds)
            if message is None:
                raise LocalError("the processes of the run could not be ended")
            if message[0] == "all ended":
                break
        self._exits.clear()
        self._alive.clear()

    def _forget(self) -> None:
        """What was applied after the checkpoint is lost: its rows say so, its counts are taken back."""
        applied, outcome = Row._fields.index("applied"), Row._fields.index("outcome")
        for k, row in enumerate(self.rows):
            if row[outcome] == APPLIED:
                values = list(row)
                values[applied], values[outcome] = False, LOST
                self.rows[k] = tuple(values)
        self.journal = []
        counters = self._saved[2] if self._saved else dict.fromkeys(("updates", "samples", "samples_applied"), 0)
        for name, value in counters.items():
            setattr(self, name, value)

    def _exit_of(self, role: str, rank: int) -> str:
        """How a process ended, as the nursery saw it."""
        deadline = time.monotonic() + 10.0  # of a process that is known to have ended
        with contextlib.suppress(Closed):
            while self._line is not None and (role, rank) not in self._exits and time.monotonic() < deadline:
                message = self._line.receive(0.1)
                if message is not None and message[0] == "ended":
                    self._exits[message[1], message[2]] = message[3]
        code = self._exits.pop((role, rank), None)
        if code is None:
            return "no exit code"
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _failure(self, rank: int, why: str) -> OffbeatError:
        return LocalError(f"{'the server' if rank < 0 else f'worker {rank}'} failed: {why}")

    # -- messages -----------------------------------------------------------------------------------------------

    def _next(self, timeout_seconds: float) -> tuple[Any, ...] | None:
        if self._inbox:
            return self._inbox.popleft()
        try:
            return self._receive(timeout_seconds)
        except Closed:
            return ("closed",)

    def _receive(self, timeout_seconds: float) -> tuple[Any, ...] | None:
        """The server's next message. What is new in its books is taken over at once, so that it stays in order."""
        assert self._server is not None
        message = self._server.receive(timeout_seconds)
        if message is None or message[0] not in _NEWS:
            return message
        self._mirror(message[-4:], clock=message[0] != "finished")
        return message[:-4]

    def _request(self, question: str, answer: str) -> tuple[Any, ...]:
        """Asks the server; what else it says meanwhile is kept for later."""
        assert self._server is not None
        try:
            self._server.send((question,))
            while True:
                message = self._receive(self.options.patience_seconds)
                if message is None:
                    raise ServerLostError(SILENT)
                if message[0] == answer:
                    return message[1:]
                self._inbox.append(message)
        except Closed:
            raise ServerLostError(GONE) from None

    def _go(self) -> None:
        assert self._server is not None
        with contextlib.suppress(Closed):
            self._server.send(("go", self.next_samples, self.next_updates, self.deadline, self.loss_limit))

    def _stop(self, why: str) -> str:
        self._request("stop", "stopped")
        return why

    def _mirror(self, news: Any, clock: bool = True) -> None:
        """Takes over what is new in the server's books."""
        now, counters, rows, journal = news
        if clock and now > self.now:
            self.now = now
        for name, value in counters.items():
            setattr(self, name, value)
        self.rows.extend(map(tuple, rows))
        assert self.journal is not None
        self.journal.extend((time, what, worker, number) for time, what, worker, number in journal)


_NEWS = ("tick", "mark", "loss", "deadline", "stopped", "saved", "finished")  # with news at their end
_KEPT = ("draws", "samples", "computing", "delayed", "communicating", "locked")


def _can_join(solver: Solver, initial: Point, world: World) -> bool:
    """Whether a lost worker can be started anew: some methods cannot take anybody in."""
    try:
        solver.init_server(initial.x, replace(world, joining=tuple(range(world.workers))))
    except ConfigError:
        return False
    return True


def pickled(setup: Setup) -> bytes:
    """The setup for a pipe; names what cannot be sent."""
    import cloudpickle

    try:
        blob: bytes = cloudpickle.dumps(setup)
        return blob
    except Exception as e:
        for what, value in (("task", setup.task), ("solver", setup.solver)):
            parts = value.__getstate__() if value is not None else None
            for name, part in parts.items() if isinstance(parts, dict) else ():
                try:
                    cloudpickle.dumps(part)
                except Exception as inner:
                    raise ConfigError(
                        f"the {what} cannot be sent to worker processes: its attribute {name!r} "
                        f"({type(part).__name__}) cannot be pickled: {inner}"
                    ) from None
        raise ConfigError(f"the run cannot be sent to worker processes: {e}") from None


def _nothing(job: Any) -> Any:
    raise AssertionError("the local engine computes gradients in its workers")
