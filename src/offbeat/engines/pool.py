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
    """Threads that compute jobs in order of their due time, a bounded number ahead.

    The bound keeps the results that wait for their virtual time to a constant number of vectors, whatever the number
    of workers. With `threads=0` each job is computed when it is asked for.
    """

    def __init__(self, compute: Callable[[Job], Gradient], threads: int) -> None:
        self._compute = compute
        self._ahead = 2 * threads + 1
        self._executor = ThreadPoolExecutor(threads, initializer=single_threaded) if threads else None
        self._pending: list[tuple[float, int, Job]] = []
        self._order = 0
        self._submitted = 0

    def add(self, job: Job) -> None:
        if self._executor is None:
            return
        self._order += 1
        heapq.heappush(self._pending, (job.due, self._order, job))
        self._pump()

    def take(self, job: Job) -> Gradient:
        """The job's result; its virtual time has come."""
        job.closed = True
        if self._executor is None:
            return self._compute(job)
        if job.future is None:
            self._submit(job)  # an earlier due time than all that fill the look-ahead
        assert job.future is not None
        result = job.future.result()
        self._submitted -= 1
        job.future = None
        self._pump()
        return result

    def cancel(self, job: Job) -> None:
        if self._executor is None:
            return
        job.closed = True
        if job.future is not None:
            job.future.cancel()
            self._submitted -= 1

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Results in order, whatever the number of threads."""
        return [function(i) for i in items] if self._executor is None else list(self._executor.map(function, items))

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def _pump(self) -> None:
        while self._pending and self._submitted < self._ahead:
            _, _, job = heapq.heappop(self._pending)
            if job.future is None and not job.closed:
                self._submit(job)

    def _submit(self, job: Job) -> None:
        assert self._executor is not None
        job.future = self._executor.submit(self._compute, job)
        self._submitted += 1
