"""The pool computes what it is given once, with no more threads than it may, and hands errors to whoever asks."""

import threading
from functools import partial

import pytest
import torch

import offbeat
from offbeat.core.effects import Gradient
from offbeat.engines.pool import Job, Pool


def job(number: int, due: float) -> Job:
    made = Job(number, 0, None, 0, number, 0.0)
    made.due = due
    return made


class Work:
    """Knows who was at it; the first jobs wait until all threads have come."""

    def __init__(self, threads: int, fails: int | None = None) -> None:
        self.computed: list[int] = []
        self.by: set[int] = set()
        self.log: list[tuple[int, int]] = []
        self.most = self.now = 0
        self._fails = fails
        self._lock = threading.Lock()
        self._together = threading.Barrier(threads)

    def __call__(self, job: Job) -> Gradient:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.computed.append(job.x)
            self.by.add(threading.get_ident())
            self.log.append((job.x, threading.get_ident()))
            first = len(self.computed) <= self._together.parties
        if first:
            self._together.wait(60)
        with self._lock:
            self.now -= 1
        if job.x == self._fails:
            raise ArithmeticError(f"job {job.x}")
        return Gradient(job.x, 0.0, 1)


@pytest.mark.parametrize("threads", [0, 1, 2, 3])
def test_each_job_is_computed_once_with_the_caller_among_the_threads(threads):
    work = Work(max(threads, 1), fails=7)
    pool = Pool(work, threads)
    jobs = [job(k, due=float(k * 7 % 13)) for k in range(13)]
    for each in jobs:
        pool.add(each)
    pool.cancel(jobs[3])
    for each in sorted(jobs, key=lambda j: j.due):
        if each is jobs[3]:
            continue
        if each is jobs[7]:
            with pytest.raises(ArithmeticError, match="job 7"):
                pool.take(each)
        else:
            assert pool.take(each).value == each.x
    pool.close()
    assert sorted(k for k in work.computed if k != 3) == [0, 1, 2, *range(4, 13)]
    assert work.most == max(threads, 1)
    assert threading.get_ident() in work.by
    assert len(work.by) == max(threads, 1)


def drain(pool: Pool) -> None:
    """Until the other thread, which works in order, has done all that it was given."""
    assert pool._executor is not None
    pool._executor.submit(int).result(60)


def test_few_results_wait_for_their_time():
    work = Work(1)
    pool = Pool(work, 2)
    jobs = [job(k, due=float(k)) for k in range(40)]
    for each in jobs:
        pool.add(each)
    for k, each in enumerate(jobs):
        pool.take(each)
        drain(pool)
        assert sorted(work.computed) == list(range(min(k + 6, 40)))  # five ahead, those that are due first
    pool.close()


def test_late_jobs_neither_keep_the_others_waiting_nor_pile_up():
    work = Work(1)
    pool = Pool(work, 2)
    late = [job(k, due=1e6) for k in range(9)]
    for each in late:
        pool.add(each)
    pool.take(late[0])  # now the others of them fill the look-ahead
    drain(pool)
    caller, quick = threading.get_ident(), 0
    for k in range(10, 60):
        mine = [job(1000 * k + i, due=float(k)) for i in range(3)]
        for each in mine:
            pool.add(each)
        pool.take(mine[0])
        drain(pool)
        for each in mine[1:]:
            assert pool.take(each).value == each.x
        quick += sum((each.x, by) in work.log for each in mine for by in work.by - {caller})
    assert quick == 2 * 50  # the other thread has its share
    assert len(pool._pending) <= 9  # what was taken before its turn is forgotten
    for each in late[1:]:
        assert pool.take(each).value == each.x
    pool.close()


def test_cancelled_jobs_make_room_and_those_not_begun_are_never_computed():
    gate, begun = threading.Event(), threading.Event()
    done: list[int] = []

    def compute(job: Job) -> Gradient:
        if job.x == 1:
            begun.set()
            gate.wait(60)
        done.append(job.x)
        return Gradient(job.x, 0.0, 1)

    pool = Pool(compute, 2)
    jobs = [job(k, due=float(k)) for k in range(30)]
    for each in jobs:
        pool.add(each)
    pool.take(jobs[0])
    assert begun.wait(60)  # the other thread is at job 1, and 2 to 5 wait for it
    for each in jobs[1:20]:
        pool.cancel(each)
    gate.set()
    assert pool.take(jobs[20]).value == 20
    drain(pool)
    assert sorted(done) == [0, 1, *range(20, 26)]
    pool.close()


def test_jobs_run_with_one_thread_inside():
    inside = []
    pool = Pool(lambda job: inside.append((threading.get_ident(), torch.get_num_threads())), 2)  # type: ignore[arg-type]
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for k in range(8):
            pool.add(job(k, due=float(k)))
        pool.take(job(9, due=0.0))
        drain(pool)
    finally:
        pool.close()
        torch.set_num_threads(before)
    assert {n for by, n in inside if by != threading.get_ident()} == {1}


@pytest.mark.parametrize("threads", [0, 2, 3])
def test_map_keeps_the_order_and_all_threads_do_each_once(threads):
    calls, together = [], threading.Barrier(max(threads, 1))

    def square(i: int) -> int:
        calls.append((i, threading.get_ident()))
        if len(calls) <= together.parties:
            together.wait(60)
        return i * i

    pool = Pool(lambda job: None, threads)
    assert pool.map(square, range(50)) == [i * i for i in range(50)]
    assert sorted(i for i, _ in calls) == list(range(50))
    assert len({by for _, by in calls}) == max(threads, 1)
    assert pool.map(str, []) == []
    pool.close()


@pytest.mark.parametrize("threads", [0, 2, 3])
def test_map_raises_the_first_error_in_order(threads):
    pool = Pool(lambda job: None, threads)
    with pytest.raises(ValueError, match="'b'"):
        pool.map(int, ["1", "2", "b", "3", "d", "4"])
    pool.close()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, partial(torch.autocast, "cpu", torch.bfloat16)])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_computes_gradients_whatever_mode_its_caller_is_in(mode, workers):
    expected = offbeat.train("digits", "asgd", workers, budget="4updates", batch=8, out=False)
    with mode():
        run = offbeat.train("digits", "asgd", workers, budget="4updates", batch=8, out=False)
    assert torch.equal(run.params, expected.params)
