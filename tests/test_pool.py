"""The pool computes what it is given once, with no more threads than it may, and hands errors to whoever asks."""

import threading

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


def test_few_results_wait_for_their_time():
    work = Work(1)
    pool = Pool(work, 2)
    jobs = [job(k, due=float(k)) for k in range(40)]
    for each in jobs:
        pool.add(each)
    ahead = []
    for k, each in enumerate(jobs):
        pool.take(each)
        ahead.append(len(set(work.computed)) - (k + 1))
    pool.close()
    assert max(ahead) <= 5


@pytest.mark.parametrize("threads", [0, 2, 3])
def test_map_keeps_the_order_and_raises_what_was_raised(threads):
    pool = Pool(lambda job: None, threads)
    assert pool.map(lambda i: i * i, range(50)) == [i * i for i in range(50)]
    with pytest.raises(ZeroDivisionError):
        pool.map(lambda i: 1 / i, [3, 2, 1, 0, 1, 2])
    assert pool.map(str, []) == []
    pool.close()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_computes_gradients_whatever_mode_its_caller_is_in(mode, workers):
    expected = offbeat.train("digits", "asgd", workers, budget="4updates", batch=8, out=False)
    with mode():
        run = offbeat.train("digits", "asgd", workers, budget="4updates", batch=8, out=False)
    assert torch.equal(run.params, expected.params)
