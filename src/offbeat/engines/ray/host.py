"""The process that Ray starts for us, and starts anew elsewhere: it becomes a server or a worker, run after run."""

import gc
import os
import platform
import sys
from contextlib import suppress
from importlib.metadata import version
from threading import Event
from typing import Any, NamedTuple

import torch

from offbeat.core.sparse import dense
from offbeat.core.task import Point, Task
from offbeat.engines.ray import common_memory
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.actor_transport import ActorPeer, ActorServer
from offbeat.engines.ray.common_memory import CommonMemory
from offbeat.engines.ray.last_words import end_of, error_log
from offbeat.engines.ray.near_sockets import NearPeer, NearServer
from offbeat.engines.ray.ray_hub import RayHub
from offbeat.engines.ray.ray_port import RayPort
from offbeat.engines.ray.remote_board import RemoteBoard, set_row
from offbeat.engines.ray.shard_frames import PartsAtWorker
from offbeat.engines.ray.shard_lines import ShardLines
from offbeat.engines.ray.shard_loop import ShardLoop
from offbeat.engines.ray.shard_messages import HeardByShard, VectorPart, rank_of
from offbeat.engines.ray.sockets import Address, PeerSocket, ServerSocket, ZmqPeer, ZmqServer
from offbeat.engines.ray.wire import Letters, identity_of, key_of
from offbeat.engines.real.blame import told
from offbeat.engines.real.checkpoint import Checkpoint, SavedWorker
from offbeat.engines.real.machine import keep_freed_memory
from offbeat.engines.real.messages import Failed, ProcessFailed, Totals
from offbeat.engines.real.server_loop import ServerLoop
from offbeat.engines.real.site import Setup, Site
from offbeat.engines.real.transport import Closed
from offbeat.engines.real.worker_loop import WorkerLoop


class ServerOrder(NamedTuple):
    """Be the server."""

    secret: bytes
    life: int
    saved: Checkpoint | None
    totals: Totals
    rows: dict[int, r.Row]
    alive: list[int]
    followed: float
    buffers: dict[int, Any]
    control_is_near: bool  # it shares the server's memory
    shards: int = 0
    among_workers: bool = False  # they sum among themselves


class WorkerOrder(NamedTuple):
    """Be a worker."""

    rank: int
    life: int
    how: str
    saved: SavedWorker | None
    key: bytes
    identity: bytes
    address: Address
    server: Any  # the server's host, for messages through Ray's own calls
    shards: list["ShardAddress"] = []  # noqa: RUF012 - never changed
    among_workers: bool = False


class ShardAddress(NamedTuple):
    """Where a worker finds a shard, and what it needs to be heard there."""

    address: Address
    key: bytes
    identity: bytes


class ShardOrder(NamedTuple):
    """Be a shard of the server."""

    shard: int
    shards: int
    secret: bytes
    life: int  # the server's
    server: Address


class Parting(NamedTuple):
    """What a process that has done its part leaves: its numbers, and announcements that may not be written down."""

    row: r.Row | None = None
    announced: list[r.Announced] = []  # noqa: RUF012 - never changed
    clock_error: float = 0.0


class About(NamedTuple):
    """Where and what this process is."""

    node: str
    pid: int
    versions: dict[str, str]
    log: str = ""
    """The file there, if it is one, in which it complains."""


class Host:
    """Runs one thing at a time. `over` ends it at its next look."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        keep_freed_memory()
        self._setup: Setup | None = None
        self._task: Task
        self._initial: Point
        self._run = ""
        self._over = Event()
        self._socket: ServerSocket | None = None
        self._inbox: Any = None
        self._memory: CommonMemory | None = None

    def about(self) -> About:
        return about_here()

    def end_of_log(self, path: str) -> str:
        """Of a process that was on this machine."""
        return end_of(path)

    def prepare(self, run: str, setup: bytes, paths: list[str]) -> str | None:
        """Makes the task; says why not, if it cannot. Modules are looked for where the driver has them, too."""
        if self._run == run:
            return None
        import cloudpickle

        sys.path += [p for p in paths if p not in sys.path and os.path.isdir(p)]
        try:
            made: Setup = cloudpickle.loads(setup)
            self._task = made.build_task()
            self._initial = self._task.init(made.seed)
            self._setup, self._run = made, run
        except Exception as e:
            return told(e)
        return None

    def open(self, transport: str, encrypt: bool, share: bool) -> Address:
        """A socket for a server that is about to begin, and memory to share with others on this machine."""
        assert self._setup is not None, "the task was not made here"
        self._over.clear()
        x = dense(self._initial.x)
        self._memory = common_memory.create(self._setup.cluster.workers, x) if share else None
        if transport == "actor":
            self._socket = self._inbox = ActorServer()
            address = Address("")
        else:
            server = ZmqServer(node_address(), encrypt, x.nbytes)
            self._socket, address = server, server.address
            if self._memory is not None:
                self._socket = near = NearServer(server)
                address = address._replace(near=near.name)
        return address._replace(node=node_address(), memory=None if self._memory is None else self._memory.handle)

    def serve(self, order: ServerOrder) -> Parting:
        try:
            return self._serve(order)
        finally:
            gc.collect()  # memory that was shared goes back now

    def _serve(self, order: ServerOrder) -> Parting:
        socket = self._socket
        assert socket is not None
        site, board = self._site()
        for i, row in order.rows.items():
            set_row(board, i, row)
        for i, buffers in order.buffers.items():
            board.publish(i, None, buffers)
        board.new_shown.clear()
        board.alive[order.alive], board.followed[0] = 1, order.followed
        memory, self._memory = self._memory, None
        shards: ShardLines | None = None
        if order.shards:
            like = dense(site.initial.x)
            shards = ShardLines(socket, order.secret, order.life, like, order.shards, site.codec)
        near, among_workers = order.control_is_near, order.among_workers
        hub = RayHub(site, board, socket, order.secret, order.life, self._over, memory, near, shards, among_workers)
        try:
            lodge = hub.gather_shards()
            ServerLoop(site, hub, order.saved, order.life, order.totals, lodge).run()
        except Closed:
            pass
        except Exception as e:
            hub.tell(ProcessFailed(-1, told(e)))
        finally:
            socket.close()
            if memory is not None:
                memory.close()
        return Parting()

    def work(self, order: WorkerOrder) -> Parting:
        try:
            return self._work(order)
        finally:
            gc.collect()

    def _work(self, order: WorkerOrder) -> Parting:
        self._over.clear()
        site, board = self._site()
        letters = Letters(order.key, order.rank, order.life, r.HeardByWorker, to_server=True)
        memory = order.address.open_memory(node_address())
        socket = self._connect(order, near=memory is not None)
        parts = self._lines_to(order) if order.shards else None
        where = (node_address(), order.among_workers)
        port = RayPort(site, board, order.rank, socket, letters, self._over, memory, parts, *where)
        error = 0.0
        try:
            error = port.greet(order.how)
            worker = WorkerLoop(site, order.rank, order.life, port)
            worker.run(site.initial.x if order.how == "begins" else None, order.saved)
        except Closed:
            pass
        except Exception as e:
            port.send(Failed(told(e)))
        finally:
            port.close()
            socket.close()
            if parts is not None:
                parts.close()
        return Parting(*port.leftover(), error)

    def _connect(self, order: WorkerOrder, *, near: bool) -> PeerSocket:
        """A line to the server; the shortest, if it is on this machine."""
        if not order.address.endpoint:
            self._inbox = made = ActorPeer(order.server, order.identity)
            return made
        if near and order.address.near:
            with suppress(OSError):
                return NearPeer(order.address.near, order.identity)
        return ZmqPeer(order.address, order.identity, self._vector_bytes)

    def _lines_to(self, order: WorkerOrder) -> PartsAtWorker:
        lines: list[tuple[PeerSocket, Letters]] = [
            (
                ZmqPeer(there.address, there.identity, self._vector_bytes),
                Letters(there.key, order.rank, order.life, VectorPart, to_server=True),
            )
            for there in order.shards
        ]
        return PartsAtWorker(lines, dense(self._initial.x), self._over)

    def shard(self, order: ShardOrder) -> Parting:
        workers, self._socket = self._socket, None
        assert isinstance(workers, ZmqServer)
        rank, secret, life = rank_of(order.shard), order.secret, order.life
        server = ZmqPeer(order.server, identity_of(secret, rank, life), self._vector_bytes)
        letters = Letters(key_of(secret, rank, life), rank, life, HeardByShard, to_server=True)
        site, _ = self._site()
        place, like = (order.shard, order.shards), dense(self._initial.x)
        try:
            ShardLoop(site, like, place, workers, server, letters, secret, life, self._over).run()
        finally:
            workers.close()
            server.close()
            gc.collect()
        return Parting()

    def deliver(self, identity: bytes, frames: list[Any]) -> None:
        """A message that comes through Ray's own calls."""
        if self._inbox is not None:
            self._inbox.deliver(identity, frames)

    def attach(self, identity: bytes, peer: Any) -> None:
        """Who is behind an identity, for messages through Ray's own calls."""
        if self._inbox is not None:
            self._inbox.attach(identity, peer)

    def fetch(self, timeout_seconds: float) -> list[list[Any]]:
        """Messages for the control, which is nobody's to call."""
        found: list[list[Any]] = self._inbox.fetch(timeout_seconds)
        return found

    def stop(self) -> None:
        self._over.set()

    def _site(self) -> tuple[Site, RemoteBoard]:
        """The run in this process, with a board that knows nothing yet."""
        assert self._setup is not None, "the task was not made here"
        board = RemoteBoard(self._setup.cluster.workers, dense(self._initial.x))
        return Site(self._setup, self._task, self._initial, board), board

    @property
    def _vector_bytes(self) -> int:
        return int(dense(self._initial.x).nbytes)


def about_here() -> About:
    return About(node_address(), os.getpid(), versions(), error_log())


def node_address() -> str:
    import ray

    address: str = ray.util.get_node_ip_address()
    return address


def versions() -> dict[str, str]:
    """What must be the same everywhere, or the bits are not."""
    import ray

    return {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "ray": ray.__version__,
        "offbeat": version("offbeat"),
    }
