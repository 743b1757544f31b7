"""Gradients in flight, computed side by side while the event loop stays sequential."""

import heapq
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from offbeat.core.bits import hold_still
from offbeat.core.effects import Gradient
from offbeat.core.task import Buffers


class Job:
    """One gradient to compute: its point and batch are known now, its result is due later."""

    __slots__ = (
        "buffers",
        "closed",
        "delay",
        "draw",
        "due",
        "future",
        "source",
        "started",
        "ticket",
        "version",
        "x",
    )

    def __init__(self, x: Any, version: int | None, buffers: Buffers, source: int, draw: int, started: float) -> None:
        self.x, self.version, self.buffers = x, version, buffers
        self.source, self.draw, self.started = source, draw, started
        self.due = started
        self.delay = 0.0  # how much of due - started is injected delay
        self.future: Future[Gradient] | None = None
        self.closed = False  # delivered or cancelled: of no use any more
        self.ticket: list[Job] = []  # what waits in the executor's queue in its stead

    def withdraw(self) -> bool:
        """Takes it back, if nobody has begun with it. Its ticket stays in the queue, but holds no vector any more."""
        if self.future is None or not self.future.cancel():
            return False
        self.ticket.clear()
        return True


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
        self._executor = ThreadPoolExecutor(threads - 1, initializer=hold_still) if threads > 1 else None
        self._pending: list[tuple[float, int, Job]] = []
        self._order = 0
        self._submitted: set[Job] = set()

    def add(self, job: Job) -> None:
        if self._executor is not None:
            self._put_off(job)

    def take(self, job: Job) -> Gradient:
        """The job's result; its virtual time has come."""
        job.closed = True
        if self._executor is None:
            return self._compute(job)
        self._submitted.discard(job)
        # Here and not in `add` or at the end: now everybody has said what comes next, and the first can be told.
        self._submit_first(self._executor)
        if job.future is None:  # due earlier than all that were begun
            return self._compute(job)
        while not (job.future.done() or job.withdraw()):
            if not self._help():
                break
        result = self._compute(job) if job.future.cancelled() else job.future.result()
        job.future = None
        return result

    def cancel(self, job: Job) -> None:
        if self._executor is None:
            return
        job.closed = True
        if job.future is not None:
            job.withdraw()
            self._submitted.discard(job)

    def compute_again(self) -> None:
        """Forgets what is computed, or begun, and not yet taken."""
        for job in list(self._submitted):
            if job.future is not None and not job.withdraw():
                job.future.exception()  # it is computed at this moment: until it is done
            job.future = None
            self._submitted.remove(job)
            self._put_off(job)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """Results in order, whatever the number of threads: the others work from the start, the caller from the end."""
        if self._executor is None:
            return [function(i) for i in items]
        items = list(items)
        futures = [self._executor.submit(function, i) for i in items]
        try:
            for k in reversed(range(len(items))):
                if futures[k].cancel():
                    futures[k] = _done(function, items[k])
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def _put_off(self, job: Job) -> None:
        self._order += 1
        heapq.heappush(self._pending, (job.due, self._order, job))

    def _submit_first(self, executor: ThreadPoolExecutor) -> None:
        """Hands out the jobs that are due first, and takes back one that is due later if there is no room."""
        while self._pending:
            due, _, job = self._pending[0]
            if job.closed:  # taken or cancelled before its turn
                heapq.heappop(self._pending)
                continue
            if len(self._submitted) >= self._ahead and not self._make_room(due):
                return
            heapq.heappop(self._pending)
            job.ticket = [job]
            job.future = executor.submit(self._redeem, job.ticket)
            self._submitted.add(job)

    def _redeem(self, ticket: list[Job]) -> Gradient:
        return self._compute(ticket[0])

    def _make_room(self, due: float) -> bool:
        """The last of those handed out gives way if it is due later; what was computed already is computed again."""
        last = max(self._submitted, key=_due)
        if last.due <= due or last.future is None:
            return False
        if last.withdraw():
            self._put_off(last)
        elif not last.future.done():
            return False
        last.future = None
        self._submitted.remove(last)
        return True

    def _help(self) -> bool:
        """Computes the first job that nobody has begun; False where there is none."""
        for job in sorted(self._submitted, key=_due):
            if job.withdraw():
                job.future = _done(self._compute, job)
                return True
        return False


def _due(job: Job) -> float:
    return job.due


def _done(function: Callable[[Any], Any], item: Any) -> Future[Any]:
    """As if a thread had done it: an error is for whoever asks for the result."""
    future: Future[Any] = Future()
    try:
        future.set_result(function(item))
    except Exception as e:
        future.set_exception(e)
    return future
