"""The nursery of a run: a process that makes the task once, and then forks the server and the workers.

It stays free of threads, so that forking is safe; the children share its memory (the dataset, say) until they write.
It ends with the process that started it, and its children end with it, because the kernel sees to that.
"""

import contextlib
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import cloudpickle
from safetensors.torch import load

from offbeat.engines.local.memory import Arena, Shape, die_with_parent
from offbeat.engines.local.server import Server
from offbeat.engines.local.setup import Site
from offbeat.engines.local.wire import Channel, Closed
from offbeat.engines.local.worker import Worker


def main(control_fd: int, arena_fd: int, parent: int) -> NoReturn:
    """The process itself, forked by the cradle."""
    code = 1
    try:
        die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if os.getppid() == parent:
            Nursery(Channel(socket.socket(fileno=control_fd)), arena_fd).run()
    except Closed:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class Nursery:
    """Forks on request; tells the parent who was started and who has ended."""

    def __init__(self, control: Channel, arena_fd: int) -> None:
        self.control = control
        message = control.receive()
        assert message is not None
        _, blob, shape = message
        try:
            setup = cloudpickle.loads(blob)
            task = setup.build_task()
            self.site = Site(setup, task, task.init(setup.seed), Arena(arena_fd, Shape(*shape)))
        except Exception as e:
            control.send(("failed", f"{type(e).__name__}: {e}"))
            raise Closed from None
        self.server: Channel | None = None  # our line to the server
        self.children: dict[int, tuple[str, int]] = {}
        control.send(("ready",))

    def run(self) -> None:
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken)
        poll = select.poll()
        for fd in (wake, self.control.fileno()):
            poll.register(fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == wake:
                    os.read(wake, 4096)
                    self._reap()
                else:
                    self._obey()

    def _obey(self) -> None:
        message, fds = self.control.receive_with_fds(None, 1)
        assert message is not None
        kind, *details = message
        if kind == "server":
            self._start_server(Channel(socket.socket(fileno=fds[0])), *details)
        elif kind == "worker":
            self._start_worker(*details)
        elif kind == "end":
            self._end_all()

    def _start_server(self, line: Channel, saved: Any, life: int) -> None:
        if self.server is not None:
            self.server.close()
        ours, theirs = Channel.pair()
        self.server = ours

        def serve() -> None:
            ours.close()
            state = None if saved is None else self._decoded(saved)
            Server(self.site, line, theirs, state, life).run()

        self._fork("server", -1, serve, lambda why: line.send(("failed", -1, why)))
        line.close()
        theirs.close()

    def _decoded(self, saved: tuple[Any, bytes, dict[str, Any], float]) -> dict[str, Any]:
        tree, tensors, counters, now = saved
        server = self.site.codec.decode(tree, load(tensors))
        return {"server": server, "counters": counters, "now": now}

    def _start_worker(self, rank: int, life: int, joins: bool) -> None:
        assert self.server is not None
        servers, workers = Channel.pair()

        def work() -> None:
            servers.close()
            assert self.server is not None
            self.server.close()
            Worker(self.site, rank, life, workers).run(None if joins else self.site.initial.x)

        def complain(why: str) -> None:
            workers.send(("failed", why))
            signal.pause()  # until the parent has read it and ends us

        pid = self._fork("worker", rank, work, complain)
        with contextlib.suppress(Closed):  # a dead server: the parent will start another, and everybody anew
            self.server.send((rank, pid, joins), servers.fileno())
        servers.close()
        workers.close()

    def _fork(self, role: str, rank: int, body: Callable[[], None], complain: Callable[[str], None]) -> int:
        """Returns when the child is sure to end with us: stopped before that, it would outlive everybody."""
        me = os.getpid()
        bound, binding = os.pipe()
        pid = os.fork()
        if pid == 0:
            _be_child(me, binding, self.control, body, complain)
        os.close(binding)
        os.read(bound, 1)  # nothing comes: its other end is closed
        os.close(bound)
        self.children[pid] = (role, rank)
        self.control.send(("started", role, rank, pid))
        return pid

    def _end_all(self) -> None:
        """The server is lost: its workers end too, before another begins."""
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        for pid in list(self.children):
            os.waitpid(pid, 0)
        self.children.clear()
        self.control.send(("all ended",))

    def _reap(self) -> None:
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            role, rank = self.children.pop(pid)
            self.control.send(("ended", role, rank, os.waitstatus_to_exitcode(status)))


def _be_child(
    parent: int, binding: int, control: Channel, body: Callable[[], None], complain: Callable[[str], None]
) -> NoReturn:
    """Never returns into the nursery's code."""
    code = 1
    try:
        die_with_parent()
        os.close(binding)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        control.close()
        if os.getppid() == parent:
            body()
            code = 0
    except Closed:
        code = 0
    except BaseException as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        with contextlib.suppress(Closed):
            complain(f"{type(e).__name__}: {e} ({os.path.basename(where.filename)}, line {where.lineno})")
    finally:
        sys.stderr.flush()
        os._exit(code)
