"""The processes of one run on a cluster: who starts them, who ends them, and how they ended."""

import contextlib
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.solver import Solver
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.actor_transport import ActorControl
from offbeat.engines.ray.common_memory import CommonMemory
from offbeat.engines.ray.crew import SERVER, Crew
from offbeat.engines.ray.host import Parting, ServerOrder, ShardAddress, ShardOrder, WorkerOrder, node_address
from offbeat.engines.ray.ray_line import RayLine
from offbeat.engines.ray.ray_options import RayOptions
from offbeat.engines.ray.remote_board import RemoteBoard, buffers_of, row_of
from offbeat.engines.ray.shard_messages import rank_of
from offbeat.engines.ray.sockets import Address, ZmqPeer
from offbeat.engines.ray.whereabouts import Whereabouts
from offbeat.engines.ray.wire import Letters, identity_of, key_of, shard_secret
from offbeat.engines.real.board import Board
from offbeat.engines.real.checkpoint import Checkpoint, SavedWorker
from offbeat.engines.real.in_place import needs_one_machine
from offbeat.engines.real.messages import Totals
from offbeat.engines.real.site import Setup, Site, pickled
from offbeat.engines.real.transport import Closed, RunError

_CONSTRUCTION_SECONDS = 300.0  # for making the task
_LOOK = 0.1  # seconds between two looks at who has ended


class Errand:
    """One thing that a host is doing, or will do when Ray has found a place for it."""

    def __init__(self, host: Any, rank: int, life: int, how: str) -> None:
        self.host, self.rank, self.life, self.how = host, rank, life, how
        self.there = host.about.options(concurrency_group="outbox").remote()  # fulfilled when the host is there
        self.since = time.monotonic()


class RayProcesses:
    """Hosts of a crew, doing what this run asks of them. A thread watches them by Ray's word."""

    def __init__(
        self,
        setup: Setup,
        site: Site,
        board: RemoteBoard,
        options: RayOptions,
        crew: Crew | None,
        notice: Callable[[str], None],
    ) -> None:
        """`notice`: says what the user should know of."""
        self._notice = notice
        self.board: Board = board
        self._remote = board
        self._setup, self._site, self._options = setup, site, options
        self._crew, self._own_crew = crew, crew is None
        self._run = secrets.token_hex(8)
        self._secret = secrets.token_bytes(32)
        self._blob: Any = None
        self._line: RayLine | None = None
        self._address = Address("")
        self._shards = [rank_of(k) for k in range(options.shards)] if options.shards > 1 else []
        self._shard_addresses: list[Address] = []
        self._lost_shard = ""
        self._memory: CommonMemory | None = None
        self._doing: dict[Any, Errand] = {}  # by the reference that Ray will fulfil
        self._lives: dict[int, int] = {}
        self._exits: dict[int, str] = {}
        self._lock = threading.RLock()
        self._gave_up: set[int] = set()  # who found no place in time
        self._ending = False
        self._over = threading.Event()
        self._watch: threading.Thread | None = None
        self._where = Whereabouts()
        self.nodes, self.pids = self._where.nodes, self._where.pids
        self.encrypted = False

    def open(self) -> None:
        blob = pickled(self._setup)
        if self._crew is None:
            together = needs_one_machine(self._setup.solver)
            self._crew = Crew(len(self._site.world.present), self._options, together=together)
        import ray  # not before: the connection says how

        ranks = [SERVER, *self._shards, *self._site.world.present]
        found = self._crew.start(ranks)
        for rank, about in found.items():
            self._where.note(rank, about)
        crosses = len(set(self.nodes.values())) > 1
        if crosses and needs_one_machine(self._setup.solver):
            raise _far_apart(self._setup.solver, self.nodes)
        self.encrypted = self._options.encryption == "on" or (self._options.encryption == "auto" and crosses)
        self._blob = ray.put(blob)
        asked = {rank: self._prepare(rank) for rank in ranks}
        _, late = ray.wait(list(asked.values()), num_returns=len(asked), timeout=_CONSTRUCTION_SECONDS)
        if late:
            raise RunError(f"the task {self._site.task.name!r} was not made within {_CONSTRUCTION_SECONDS:.0f} s")
        for rank, ref in asked.items():
            try:
                why = ray.get(ref)
            except ray.exceptions.RayError as e:
                why = str(e).splitlines()[0]
            if why is not None:
                raise ConfigError(f"task {self._site.task.name!r} cannot be made on machine {found[rank].node}: {why}")
        self._watch = threading.Thread(target=self._look_on, name="who has ended", daemon=True)
        self._watch.start()

    # -- starting -----------------------------------------------------------------------------------------------

    def start_server(self, saved: Checkpoint | None, life: int, totals: Totals) -> RayLine:
        import ray

        host = self._prepared(SERVER)
        share = self._options.shared_memory == "auto"
        opened = [
            self._prepared(rank).open.options(concurrency_group="run").remote(*how)
            for rank, *how in [
                (SERVER, self._options.transport, self.encrypted, share),
                *((rank, "zmq", self.encrypted, False) for rank in self._shards),
            ]
        ]
        try:
            self._address, *self._shard_addresses = ray.get(opened, timeout=_CONSTRUCTION_SECONDS)
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as e:
            raise RunError(f"the server could not be started: {str(e).splitlines()[0]}") from None
        secret, board = self._secret, self._remote
        memory = self._memory = self._address.open_memory(node_address())
        workers = range(self._setup.cluster.workers)
        order = ServerOrder(
            secret,
            life,
            saved,
            totals,
            {i: row_of(board, i) for i in workers},
            board.alive.nonzero()[0].tolist(),
            float(board.followed[0]),
            {i: b for i in workers if (b := buffers_of(board, i)) is not None},
            memory is not None,
            len(self._shards),
            self._options.allreduce != "server",
        )
        identity = identity_of(secret, r.CONTROL, life)
        socket = (
            ZmqPeer(self._address, identity, board.snapshot().nbytes)
            if self._address.endpoint
            else ActorControl(host, identity)
        )
        letters = Letters(key_of(secret, r.CONTROL, life), r.CONTROL, life, r.HeardByControl, to_server=True)
        log, logs = (None, []) if memory is None else (memory.log, memory.logs)
        with self._lock:
            self._line = RayLine(socket, letters, board, self._site.codec, self._end_worker, self._notice, log, logs)
            self._lives[SERVER], self._lost_shard = life, ""
            self._start_shards(life)
            self._do(host.serve.options(concurrency_group="run").remote(order), SERVER, life, "begins")
        return self._line

    def _start_shards(self, life: int) -> None:
        for k, rank in enumerate(self._shards):
            order = ShardOrder(k, len(self._shards), self._secret, life, self._address)
            self._lives[rank] = life
            shard = self._crew_there.host(rank).shard.options(concurrency_group="run")
            self._do(shard.remote(order), rank, life, "begins")

    def _shards_for(self, rank: int, life: int) -> list[ShardAddress]:
        found = []
        for k, address in enumerate(self._shard_addresses):
            own = shard_secret(self._secret, k, self._lives[SERVER])
            found.append(ShardAddress(address, key_of(own, rank, life), identity_of(own, rank, life)))
        return found

    def start_worker(self, rank: int, life: int, how: str, saved: SavedWorker | None = None) -> None:
        assert self._line is not None
        identity, key = identity_of(self._secret, rank, life), key_of(self._secret, rank, life)
        host, server = self._prepared(rank), self._crew_there.host(SERVER)
        if not self._address.endpoint:
            server.attach.options(concurrency_group="inbox").remote(identity, host)
        shards = self._shards_for(rank, life)
        among_workers = self._options.allreduce != "server"
        order = WorkerOrder(rank, life, how, saved, key, identity, self._address, server, shards, among_workers)
        with self._lock:
            self._lives[rank] = life
            self._do(host.work.options(concurrency_group="run").remote(order), rank, life, how)

    def _prepared(self, rank: int) -> Any:
        """A host that has made the task, or will before it does anything else."""
        self._prepare(rank)
        return self._crew_there.host(rank)

    def _prepare(self, rank: int) -> Any:
        prepare = self._crew_there.host(rank).prepare.options(concurrency_group="run")
        return prepare.remote(self._run, self._blob, [os.path.abspath(p) for p in sys.path])

    def _do(self, reference: Any, rank: int, life: int, how: str) -> None:
        self._doing[reference] = Errand(self._crew_there.host(rank), rank, life, how)

    @property
    def _crew_there(self) -> Crew:
        assert self._crew is not None
        return self._crew

    # -- ending -------------------------------------------------------------------------------------------------

    def _look_on(self) -> None:
        """Who has ended, and how. The server is told of workers, the control of the server."""
        import ray

        while not self._over.wait(0 if self._doing else _LOOK):
            with self._lock:
                references = list(self._doing)
            if not references:
                continue
            try:
                ended, _ = ray.wait(references, num_returns=1, timeout=_LOOK)
            except ray.exceptions.RayError:
                continue
            for reference in ended:
                self._ended(reference)
            self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        """Whoever finds no place in time does not come: the others are not to wait for it."""
        import ray

        with self._lock:
            for errand in self._doing.values():
                if errand.there is None:
                    continue
                if ray.wait([errand.there], timeout=0)[0]:
                    self._arrived(errand)
                elif time.monotonic() - errand.since > self._options.wait_seconds:
                    self._gave_up.add(errand.rank)
                    self._crew_there.end(errand.rank)  # its end is noticed like any other

    def _arrived(self, errand: Errand) -> None:
        import ray

        with contextlib.suppress(ray.exceptions.RayError):
            self._where.note(errand.rank, ray.get(errand.there))
        errand.there = None

    def _ended(self, reference: Any) -> None:
        import ray

        try:
            parting: Parting | None = ray.get(reference)
            how = "it ended"
        except ray.exceptions.RayError as e:
            parting, how = None, str(e)
        with self._lock:
            errand = self._doing.get(reference)
        if errand is not None and parting is None:
            how = self._how(errand, how)  # without the lock: a machine that is cut off takes seconds not to answer
        with self._lock:
            if errand is None or self._doing.pop(reference, None) is None:
                return
            if parting is None:
                self._crew_there.forget(errand.rank, errand.host)
            elif parting.clock_error:
                self._notice(f"the clock of worker {errand.rank} is known to {parting.clock_error * 1e3:.2g} ms")
            self._exits[errand.rank] = how
            line = self._line
            if line is None:
                return
            if errand.rank == SERVER:
                line.server_ended()
                return
            if errand.rank in self._shards:
                if not self._ending and not self._lost_shard:  # the server is nothing without it
                    self._lost_shard = f"shard {self._shards.index(errand.rank)} of it was lost: {how}"
                    self._crew_there.end(SERVER)
                return
            if parting is not None:
                line.left(errand.rank, errand.life, parting.announced)
                if self._ending and parting.row is not None:
                    line.last_row(errand.rank, parting.row)
            if not self._ending:
                with contextlib.suppress(Closed):
                    line.send(r.WorkerEnded(errand.rank, errand.life, errand.how))

    def _how(self, errand: Errand, words: str) -> str:
        """What became of a process that did not end by itself; `words`: Ray's."""
        if errand.rank in self._gave_up:
            return f"Ray found no place for it within {self._options.wait_seconds:.0f} s"
        if errand.rank == SERVER and self._lost_shard:
            return self._lost_shard
        with self._lock:
            others = {e.rank: e.host for e in self._doing.values() if e.rank != errand.rank}
        return self._where.how_it_ended(errand.rank, words, others)

    def _end_worker(self, rank: int, life: int) -> None:
        """The server has given it up."""
        with self._lock:
            if self._lives.get(rank) == life:
                self._crew_there.end(rank)

    def end_all(self, patience_seconds: float) -> None:
        """They are asked to end, and keep their processes; who does not in time is killed."""
        import ray

        with self._lock:
            self._ending = True
            busy = list(self._doing.values())
        for errand in busy:
            errand.host.stop.options(concurrency_group="outbox").remote()
            if errand.there is not None and not ray.wait([errand.there], timeout=0)[0]:
                self._crew_there.end(errand.rank)  # it was never there
        deadline = time.monotonic() + min(patience_seconds, 30.0)
        while self._doing and time.monotonic() < deadline:
            time.sleep(_LOOK / 10)
        with self._lock:
            for errand in self._doing.values():
                self._crew_there.end(errand.rank)
            self._doing.clear()
            self._exits.clear()
            self._ending = False

    def room(self, rank: int) -> bool:
        """Ray finds a place for whoever was promised one, or had one; others come when something is free."""
        if rank in self._gave_up or not self._crew_there.promised(rank):
            if not self._crew_there.free(rank):
                return False
            self._gave_up.discard(rank)
        return True

    def machines(self) -> dict[int, str]:
        return {rank: node for rank, node in self.nodes.items() if rank > SERVER}

    def exit_of(self, role: str, rank: int) -> str:
        deadline = time.monotonic() + 5.0
        rank = SERVER if role == "server" else rank
        while rank not in self._exits and time.monotonic() < deadline:
            time.sleep(_LOOK)
        return self._exits.pop(rank, "Ray does not say how")

    def lost_share(self) -> float | None:
        return None if self._memory is None else self._memory.vectors.lost_share()

    def close(self) -> None:
        if self._crew is not None:
            if not self._own_crew:
                self.end_all(10.0)
            self._over.set()
            if self._watch is not None:
                self._watch.join()
            if self._own_crew:
                self._crew.close()
        self._crew = None


def _far_apart(solver: Solver, nodes: Mapping[int, str]) -> ConfigError:
    where = ", ".join(sorted(set(nodes.values())))
    return ConfigError(
        f"{type(solver).__name__} needs memory that all workers share, and they are on several machines ({where}): "
        "use fewer workers, so that one has room for all"
    )
