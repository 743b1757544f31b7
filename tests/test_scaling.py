"""Workers come and go while a run trains: because somebody asks for it, and because they are lost."""

import json
import os
import random
import signal
import subprocess
import sys
from math import inf

import pytest
import torch

from harness import Stop, mlp_task
from offbeat import solver
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.core.shares import Shares, entries
from offbeat.data import partitions
from offbeat.engines.local import Fault, Options
from offbeat.engines.real.transport import RunError
from offbeat.engines.replay import Entry, Replay
from offbeat.folders import wishes
from offbeat.lab.config import make
from offbeat.lab.runs.another_number import scale
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build as build_plan
from offbeat.lab.runs.ready import check
from processes import until
from real import PLACES, build, rows_of, to_its_end

WORKERS, BATCH = 4, 8
ALL = ["shared", "interleaved", "split"]


def feed_of(task, partition):
    divide = partitions.parse(partition).divide
    shards = None if divide is None else divide(partitions.Stock(task.size, WORKERS, 3, BATCH, None))
    options = {"shards": shards, "interleaved": partition == "interleaved"}
    return Feed(task.size, batch=BATCH, workers=WORKERS, seed=3, **options)


class Phases(Stop):
    """Asks for one number of workers after another, each when those of the last have come and done something."""

    def __init__(self, *numbers, then=None):
        super().__init__(updates=inf)
        self.numbers, self.then = list(numbers), then
        self.before, self.wanted, self.seen = None, None, []

    def tick(self):
        there, board = set(self.engine.presence.there), self.engine.processes.board
        if self.before is None:
            self.before, self.wanted = board.draws.copy(), len(there)
        active = [i for i in there if board.draws[i] >= self.before[i] + 3]
        if len(there) != self.wanted or len(active) < len(there):
            return False
        self.seen.append(len(there))
        if not self.numbers:
            return self.then is None or bool(self.then(self.engine))
        self.wanted, self.before = self.numbers.pop(0), board.draws.copy()
        self.engine.scale(self.wanted)
        return False


class Until(Stop):
    """Ends a run when something holds."""

    def __init__(self, holds):
        super().__init__(updates=inf)
        self.holds = holds

    def tick(self):
        return bool(self.holds(self.engine))


def replayed(engine, rule, task, partition):
    replay = Replay(task, rule, feed_of(task, partition), engine.world, seed=3)
    replay.follow(Entry(*entry) for entry in engine.journal)
    return replay.parameters


def check_data(engine, partition):
    """No batch came twice and, where data is divided among workers, none was passed over."""
    own = [(r.source, r.draw) for r in rows_of(engine) if r.draw is not None]
    assert len(own) == len(set(own))
    if partition == "split":
        for source in range(WORKERS):
            draws = sorted(draw for s, draw in own if s == source)
            assert draws == list(range(len(draws))), f"of share {source}, every batch in turn"
            assert draws, "no share is left alone"


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("partition", ALL)
@pytest.mark.parametrize("rule", ["asgd", "sync", "easgd"])
@pytest.mark.parametrize("place", PLACES)
def test_a_run_with_more_and_fewer_workers_is_replayed_to_the_bit(rule, partition, starter):
    task = mlp_task()
    watch = Phases(WORKERS, 1, 3)
    options = Options(start=2)
    feed = feed_of(task, partition)
    engine = build(starter, solver(rule, lr=0.05), workers=WORKERS, task=task, feed=feed, options=options)
    to_its_end(engine, watch)
    assert watch.seen == [2, WORKERS, 1, 3]
    assert torch.equal(engine.x, replayed(engine, solver(rule, lr=0.05), task, partition))
    check_data(engine, partition)
    assert sum("workers are wanted" in line for line in engine.incidents) == 3
    assert not engine.lost_updates


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", PLACES)
def test_a_scaled_run_goes_on_from_its_checkpoint_with_as_many_workers(starter):
    task, saved = mlp_task(), {}

    def save(engine):
        tensors = {}
        saved["tree"] = json.loads(json.dumps(engine.save(tensors)))
        saved["tensors"] = {name: t.clone() for name, t in tensors.items()}
        saved["journal"] = list(engine.journal)
        return True

    def made():
        feed = feed_of(task, "split")
        return build(starter, solver("asgd", lr=0.05), workers=WORKERS, task=task, feed=feed, options=Options(start=2))

    to_its_end(made(), Phases(3, then=save))
    engine = made()
    engine.restore(saved["tree"], saved["tensors"])
    watch = Phases()
    to_its_end(engine, watch)
    assert watch.seen == [3]
    whole = [*saved["journal"], *engine.journal]
    replay = Replay(task, solver("asgd", lr=0.05), feed_of(task, "split"), engine.world, seed=3)
    replay.follow(Entry(*entry) for entry in whole)
    assert torch.equal(engine.x, replay.parameters)


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("place", PLACES)
def test_a_server_that_is_lost_after_a_change_forgets_nothing_of_it(starter):
    task = mlp_task()
    options = Options(start=2, faults=(Fault("kill", 25), Fault("kill", 45, life=2)))
    feed = feed_of(task, "split")
    engine = build(starter, solver("asgd", lr=0.05), workers=WORKERS, task=task, feed=feed, options=options)
    watch = Phases(3, 1, then=lambda e: e.updates > 60)
    to_its_end(engine, watch)
    assert sum("the server was lost" in line for line in engine.incidents) == 2
    assert engine.lost_updates == 0
    assert torch.equal(engine.x, replayed(engine, solver("asgd", lr=0.05), task, "split"))
    check_data(engine, "split")


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_the_share_of_a_worker_that_is_left_out_is_taken_over(launcher):
    task = mlp_task()
    options = Options(on_loss="leave out", faults=(Fault("kill", 4, 1),))
    feed = feed_of(task, "split")
    engine = build(launcher, solver("asgd", lr=0.05), workers=WORKERS, task=task, feed=feed, options=options)
    to_its_end(engine, Until(lambda e: any(r.source == 1 and r.worker != 1 for r in rows_of(e))))
    others = [r for r in rows_of(engine) if r.source == 1 and r.worker != 1]
    assert min(r.draw for r in others) == 5, "batch 4 was lost with its worker, and has its row"
    check_data(engine, "split")
    assert torch.equal(engine.x, replayed(engine, solver("asgd", lr=0.05), task, "split"))


@pytest.mark.processes
def test_a_run_with_fewer_workers_than_its_floor_fails(launcher):
    options = Options(on_loss="leave out", floor=2, faults=(Fault("kill", 2, 1),))
    engine = build(launcher, solver("asgd", lr=0.05), workers=2, options=options)
    with pytest.raises(RunError, match=r"1 workers are left, fewer than local.floor=2"):
        to_its_end(engine, Stop(updates=inf))


@pytest.mark.parametrize(
    ("rule", "workers", "why"),
    [
        ("asgd", 5, "may have 2 to 4 workers"),
        ("asgd", 1, "may have 2 to 4 workers"),
        ("allreduce", 3, "cannot take in workers that join later"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(rule, workers, why):
    engine = build(None, solver(rule, lr=0.05), workers=4, options=Options(floor=2))
    try:
        with pytest.raises(ConfigError, match=why):
            engine.scale(workers)
    finally:
        engine.close()


# -- shares, by themselves ---------------------------------------------------------------------------------------------


def test_shares_are_dealt_so_that_every_batch_comes_once():
    """Any order of comings and goings, drawn by lot, against a plain count."""
    for seed in range(200):
        lot = random.Random(seed)
        n = lot.randint(1, 6)
        shares, draws = Shares(), [0] * n
        taken: dict[int, list[int]] = {i: [] for i in range(n)}
        there = set(range(n))
        journal = []
        for _ in range(lot.randint(1, 12)):
            for _ in range(lot.randint(0, 20)):
                i = lot.choice(sorted(there))
                share, position = shares.nth(i, draws[i])
                taken[share].append(position)
                draws[i] += 1
            there = set(lot.sample(range(n), lot.randint(1, n)))
            for i, held in shares.deal(there, draws).items():
                journal += entries(i, held)
            held = [share for i in there for share in shares.positions(i, draws[i])]
            assert sorted(held) == list(range(n)), "everybody's share is with exactly one who is there"
        assert all(positions == list(range(len(positions))) for positions in taken.values())
        followed = Shares()
        for what, worker, number in journal:
            followed.follow(what, worker, number)
        assert followed.plain() == shares.plain() == Shares(json.loads(json.dumps(shares.plain()))).plain()


# -- from the shell ----------------------------------------------------------------------------------------------------


def offbeat(*words, folder):
    command = [sys.executable, "-m", "offbeat", *map(str, words)]
    env = {**os.environ, "OFFBEAT_PROGRESS": "0"}
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def finish(process):
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_running_run_is_scaled_from_another_shell(engine, tmp_path):
    words = ["--engine", engine, "--workers", 3, "--set", "local.start=1", "--set", "data.partition=split"]
    run = offbeat("run", "digits", *words, "--budget", "100000updates", "--out", "r", folder=tmp_path)
    until(lambda: (tmp_path / "r" / "run.json").exists() or run.poll() is not None, "the run to begin")
    code, out, err = finish(offbeat("scale", "r", "--workers", 3, folder=tmp_path))
    assert code == 0, err + run.communicate()[1] if run.poll() is not None else err
    assert "3 are wanted" in out
    code, _, err = finish(offbeat("scale", "r", "--workers", 4, folder=tmp_path))
    assert (code, "this run may have 1 to 3 workers" in err) == (2, True), err
    assert not (tmp_path / "r" / "wish.json").exists()
    run.send_signal(signal.SIGINT)
    code, _, err = finish(run)
    assert code == 130, err
    code, _, err = finish(offbeat("scale", "r", "--workers", 2, folder=tmp_path))
    assert (code, "not being run by anybody" in err) == (2, True), err


def test_a_simulation_is_not_scaled(tmp_path):
    execute(build_plan(make({"task": {"name": "quadratic"}, "budget": {"updates": 5}})), tmp_path / "r", pool=0)
    with pytest.raises(ConfigError, match="of the sim engine, whose number of workers stays"):
        scale(tmp_path / "r", 3)


@pytest.mark.parametrize(
    "wish", [b"{}", b"[1", b'{"number": "a", "workers": -1}', b'{"number": "", "workers": 2}', b"\xff", b"x" * 5000]
)
def test_a_wish_that_cannot_be_read_is_dropped(wish, tmp_path):
    (tmp_path / "wish.json").write_bytes(wish)
    assert wishes.take_wish(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_wish_that_is_a_folder_is_passed_over_and_left_to_whoever_made_it(tmp_path):
    (tmp_path / "wish.json" / "inside").mkdir(parents=True)
    assert wishes.take_wish(tmp_path) is None
    assert (tmp_path / "wish.json" / "inside").is_dir()


def test_a_wish_that_is_a_pipe_or_a_link_is_not_waited_for_nor_followed(tmp_path):
    (tmp_path / "elsewhere").write_bytes(b'{"number": "a", "workers": 2}')
    (tmp_path / "wish.json").symlink_to(tmp_path / "elsewhere")
    assert wishes.take_wish(tmp_path) is None
    os.mkfifo(tmp_path / "wish.json")
    assert wishes.take_wish(tmp_path) is None
    assert [p.name for p in tmp_path.iterdir()] == ["elsewhere"]


@pytest.mark.parametrize("words", [{"start": 5}, {"floor": 3, "start": 2}, {"floor": 5}])
def test_a_floor_and_a_start_that_do_not_fit_are_refused(words):
    with pytest.raises(ConfigError, match=r"local.floor <= local.start <= cluster.workers"):
        make({"task": {"name": "digits"}, "engine": "local", "cluster": {"workers": 4}, "local": words})


def test_a_solver_that_takes_nobody_in_cannot_begin_with_fewer():
    values = {"task": {"name": "quadratic"}, "engine": "local", "cluster": {"workers": 4}, "local": {"start": 2}}
    with pytest.raises(ConfigError, match="cannot take in workers that join later"):
        check(build_plan(make({**values, "solver": {"name": "allreduce"}})))
