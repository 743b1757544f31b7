"""Gradients in flight, computed side by side while the event loop stays sequential."""

import heapq
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch

from offbeat.core.effects import Gradient
from offbeat.core.task import Buffers


class Job:
    """One gradient to compute: its point and batch are known now, its result is due later."""

    __slots__ = (
        "batch",
        "buffers",
        "closed",
        "delay",
        "draw",
        "due",
        "future",
        "key",
        "source",
        "started",
        "version",
        "x",
    )

    def __init__(self, x: Any, version: int | None, buffers: Buffers, source: int, draw: int, started: float) -> None:
        self.x, self.version, self.buffers = x, version, buffers
        self.source, self.draw, self.started = source, draw, started
        self.due = started
        self.delay = 0.0  # how much of due - started is injected delay
        self.batch: Any = None
        self.key = 0
        self.future: Future[Gradient] | None = None
        self.closed = False  # delivered or cancelled: of no use any more


def single_threaded() -> None:
    """One intra-op thread a gradient, always: the number of threads changes bits."""
    torch.set_num_threads(1)


class Pool:
    """Computes jobs in order of their due time, a bounded number ahead, on `threads` threads: the caller and others.

    The caller computes instead of waiting, so that no more threads are at work than were asked for: with one more than
    there are cores, they would take the interpreter from each other. The bound keeps the results that wait for their
    virtual time to a constant number of vectors, whatever the number of workers. Up to one thread, each job is computed
    when it is asked for.
    """

    def __init__(self, compute: Callable[[Job], Gradient], threads: int) -> None:
        self._compute = compute
        self._ahead = 2 * threads + 1
        self._executor = ThreadPoolExecutor(threads - 1, initializer=single_threaded) if threads > 1 else None
        self._pending: list[tuple[float, int, Job]] = []
        self._order = 0
        self._submitted: dict[Job, None] = {}  # as an ordered set

    def add(self, job: Job) -> None:
        if self._executor is None:
            return
        self._order += 1
        heapq.heappush(self._pending, (job.due, self._order, job))
        self._pump()

    def take(self, job: Job) -> Gradient:
        """The job's result; its virtual time has come."""
        job.closed = True
        if self._executor is None or job.future is None:  # None: due earlier than all that fill the look-ahead
            return self._compute(job)
        del self._submitted[job]
        while not (job.future.done() or job.future.cancel()):
            if not self._help():
                break
        result = self._compute(job) if job.future.cancelled() else job.future.result()
        job.future = None
        self._pump()
        return result

    def cancel(self, job: Job) -> None:
        if self._executor is None:
            return
        job.closed = True
        if job.future is not None:
            job.future.cancel()
            del self._submitted[job]

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Results in order, whatever the number of threads: the others work from the start, the caller from the end."""
        if self._executor is None:
            return [function(i) for i in items]
        work = [(self._executor.submit(function, i), i) for i in items]
        own = {future: function(i) for future, i in reversed(work) if future.cancel()}
        return [own[future] if future in own else future.result() for future, _ in work]

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def _help(self) -> bool:
        """Computes the first job that nobody has begun; False where there is none."""
        for job in self._submitted:
            if job.future is not None and job.future.cancel():
                job.future = Future()
                try:
                    job.future.set_result(self._compute(job))
                except Exception as e:
                    job.future.set_exception(e)  # for whoever takes it
                return True
        return False

    def _pump(self) -> None:
        assert self._executor is not None
        while self._pending and len(self._submitted) < self._ahead:
            _, _, job = heapq.heappop(self._pending)
            if job.future is None and not job.closed:
                job.future = self._executor.submit(self._compute, job)
                self._submitted[job] = None
