"""The forker of a run: a process that makes the task once, and then forks the server and the workers.

It stays free of threads, so that forking is safe; the children share its memory (the dataset, say) until they write.
It ends with the process that started it, and with it everything that was started below it: children end because the
kernel sees to that, and what they have started themselves is adopted and ended here.
"""

import contextlib
import faulthandler
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import cloudpickle

from offbeat.engines.local import announcements
from offbeat.engines.local.arena import Arena, Shape
from offbeat.engines.local.channel import Channel
from offbeat.engines.local.hub import LocalHub
from offbeat.engines.local.local_messages import (
    AllEnded,
    Arriving,
    EndAll,
    Ended,
    HeardByServer,
    HeardByWorker,
    NotReady,
    Ready,
    SetUp,
    Started,
    StartServer,
    StartWorker,
    ToForker,
)
from offbeat.engines.local.port import LocalPort
from offbeat.engines.real.blame import crash_line, told
from offbeat.engines.real.machine import adopt_orphans, die_with_parent, end_children, heed_signals
from offbeat.engines.real.messages import Failed, FromControl, ProcessFailed
from offbeat.engines.real.server_loop import ServerLoop
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Closed
from offbeat.engines.real.worker_loop import WorkerLoop

_PARENT_GONE = signal.SIGUSR2


def main(control_fd: int, arena_fd: int, parent: int) -> NoReturn:
    """The process itself, forked by the launcher."""
    code = 1
    try:
        die_with_parent()
        adopt_orphans()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if os.getppid() == parent:
            Forker(Channel.of(control_fd, ToForker), arena_fd).run(parent)
    except Closed:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        end_children()
        sys.stderr.flush()
        os._exit(code)


class Child(NamedTuple):
    """A process that we have forked, and the file where it says why it crashed."""

    role: str
    rank: int
    crash: int


class Forker:
    """Forks on request; tells the engine who has ended."""

    def __init__(self, control: Channel, arena_fd: int) -> None:
        self.control = control
        asked = control.receive()
        assert isinstance(asked, SetUp)
        try:
            setup = cloudpickle.loads(asked.setup)
            task = setup.build_task()
            self.arena = Arena(arena_fd, Shape(*asked.shape))
            self.site = Site(setup, task, task.init(setup.seed), self.arena)
        except Exception as e:
            control.send(NotReady(told(e)))
            raise Closed from None
        self.server: Channel | None = None  # our line to the server
        self.children: dict[int, Child] = {}
        control.send(Ready())

    def run(self, parent: int) -> None:
        """Until the engine has gone, or the launcher, which the kernel tells us."""
        signal.signal(_PARENT_GONE, _end)
        die_with_parent(_PARENT_GONE)
        if os.getppid() != parent:
            raise Closed
        wake, woken = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
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
        order, fds = self.control.receive_with_fds(None, 1)
        try:
            match order:
                case StartServer():
                    self._start_server(Channel.of(fds[0], FromControl), order)
                case StartWorker():
                    self._start_worker(order)
                case EndAll():
                    return self._end_all()
        except OSError as e:
            self.control.send(Started(f"{e.strerror} (more processes, ulimit -u, or open files, ulimit -n?)"))
        else:
            self.control.send(Started())

    def _start_server(self, line: Channel, order: StartServer) -> None:
        if self.server is not None:
            self.server.close()
        ours, theirs = Channel.pair(Arriving, Arriving)
        self.server = ours
        announcements.forget(self.arena)

        def serve() -> None:
            ours.close()
            hub = LocalHub(self.site, self.arena, line, theirs)
            ServerLoop(self.site, hub, order.saved, order.life, order.totals).run()

        with contextlib.closing(line), contextlib.closing(theirs):
            self._fork("server", -1, serve, lambda why: line.send(ProcessFailed(-1, why)))

    def _start_worker(self, order: StartWorker) -> None:
        assert self.server is not None
        servers, workers = Channel.pair(HeardByServer, HeardByWorker)

        def work() -> None:
            servers.close()
            assert self.server is not None
            self.server.close()
            port = LocalPort(self.site, self.arena, order.rank, workers)
            worker = WorkerLoop(self.site, order.rank, order.life, port)
            worker.run(self.site.initial.x if order.how == "begins" else None, order.saved)

        def complain(why: str) -> None:
            workers.send(Failed(why))
            signal.pause()  # until the parent has read it and ends us

        with contextlib.closing(servers), contextlib.closing(workers):
            pid = self._fork("worker", order.rank, work, complain)
            with contextlib.suppress(Closed):  # a dead server: the engine will start another, and everybody anew
                self.server.send(Arriving(order.rank, pid, order.how), servers.fileno())

    def _fork(self, role: str, rank: int, body: Callable[[], None], complain: Callable[[str], None]) -> int:
        """Returns when the child is sure to end with us: stopped before that, it would outlive everybody."""
        me = os.getpid()
        bound, binding = os.pipe()
        crash = os.memfd_create("crash", os.MFD_CLOEXEC)
        try:
            pid = os.fork()
            if pid == 0:
                _be_child(me, binding, crash, self.control, body, complain)
        except OSError:
            for fd in (bound, binding, crash):
                os.close(fd)
            raise
        os.close(binding)
        os.read(bound, 1)  # nothing comes: its other end is closed
        os.close(bound)
        self.children[pid] = Child(role, rank, crash)
        return pid

    def _end_all(self) -> None:
        """The server is lost: its workers end too, before another begins."""
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        for pid, child in self.children.items():
            os.waitpid(pid, 0)
            os.close(child.crash)
        self.children.clear()
        self.control.send(AllEnded())

    def _reap(self) -> None:
        """Who has ended: a child, or an orphan of one, or something that the task had started."""
        with contextlib.suppress(ChildProcessError):  # there is nobody any more
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                child = self.children.pop(ended[0], None)
                if child is not None:
                    where = crash_line(os.pread(child.crash, 65536, 0).decode(errors="replace"))
                    os.close(child.crash)
                    self.control.send(Ended(child.role, child.rank, os.waitstatus_to_exitcode(ended[1]), where))


def _end(*_: object) -> NoReturn:
    raise Closed


def _be_child(
    parent: int,
    binding: int,
    crash: int,
    control: Channel,
    body: Callable[[], None],
    complain: Callable[[str], None],
) -> NoReturn:
    """Never returns into the forker's code."""
    code = 1
    try:
        die_with_parent()
        os.close(binding)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, _PARENT_GONE):
            signal.signal(number, signal.SIG_DFL)
        os.register_at_fork(after_in_child=heed_signals)
        faulthandler.enable(crash, all_threads=False)
        control.close()
        if os.getppid() == parent:
            body()
            code = 0
    except Closed:
        code = 0
    except BaseException as e:
        with contextlib.suppress(Closed):
            complain(told(e))
    finally:
        sys.stderr.flush()
        os._exit(code)
