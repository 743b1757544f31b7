"""A run may be stopped anywhere, in any way, and ends with the bits of one that was not."""

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import offbeat
import resume_targets
from harness import USABLE, Stop, build, cluster, mlp_task
from offbeat.core.budget import Amount, Budget
from offbeat.core.codec import Codec
from offbeat.core.errors import StoreError
from offbeat.core.format import FORMAT
from offbeat.engines.real.checkpoint import pack, unpack
from offbeat.engines.sim import Sim
from offbeat.folders.tensor_files import read_tensors
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.folder import Folder
from offbeat.lab.runs.result import Run
from offbeat.lab.watch import Watch
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers.ad_psgd import ADPSGD
from offbeat.solvers.allreduce import AllReduceSGD
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.constant_delay import ConstantDelay
from offbeat.solvers.hogwild import Hogwild
from offbeat.solvers.parameter_server import ParameterServer
from offbeat.solvers.sync import Sync
from offbeat.tasks.idle import Idle
from offbeat.tasks.quadratic import Quadratic

SGD = partial(torch.optim.SGD, lr=0.05)
MOMENTUM = partial(torch.optim.SGD, lr=0.02, momentum=0.9)
ADAM = partial(torch.optim.Adam, lr=0.01)

# -- the engine: saved and restored between two events ---------------------------------------------------------------

NOISY = partial(Quadratic, 6, noise=1.0)
DROPOUT = partial(mlp_task, lambda: nn.Dropout(0.4))
BUSY: dict[str, Any] = {"compute": "lognormal(10ms,6ms)", "latency": "2ms", "service": "exponential(4ms)"}
EVENTS = ["lose 3 at 55ms", "join 4 at 33ms", "lose 1 at 90ms", "lose 4 at 130ms"]

CASES: dict[str, tuple[Callable[[], Any], Callable[[], Any], Any]] = {
    "asgd": (NOISY, lambda: ASGD(SGD), cluster(4, compute="normal(10ms,3ms)")),
    "asgd, momentum, dropout": (DROPOUT, lambda: ASGD(MOMENTUM), cluster(4, compute="normal(10ms,3ms)")),
    "asgd, adam": (NOISY, lambda: ASGD(ADAM), cluster(4, compute="exponential(10ms)")),
    "asgd, equal times": (NOISY, lambda: ASGD(SGD), cluster(4)),
    "asgd, batch norm": (partial(mlp_task, norm=True), lambda: ASGD(MOMENTUM), cluster(3, compute="normal(10ms,3ms)")),
    "asgd, queue and link": (NOISY, lambda: ASGD(ADAM), cluster(5, **BUSY)),
    "asgd, delays": (NOISY, lambda: ASGD(SGD), cluster(3, compute="5ms", delay=["exponential(9ms)", "20ms@1"])),
    "asgd, scripted": (
        NOISY,
        lambda: ASGD(SGD),
        cluster(3, schedule=[(k * 0.01, (k * k) % 3) for k in range(1, 60)]),
    ),
    "gate": (NOISY, lambda: ParameterServer(SGD, gate=lambda s, a: a.tau < 3), cluster(6, compute="exponential(10ms)")),
    "sync": (NOISY, lambda: Sync(SGD), cluster(4, compute="normal(10ms,3ms)")),
    "sync, adam, dropout": (DROPOUT, lambda: Sync(ADAM), cluster(3, compute="exponential(10ms)")),
    "sync, queue and link": (NOISY, lambda: Sync(MOMENTUM), cluster(4, **BUSY)),
    "constant delay": (DROPOUT, lambda: ConstantDelay(MOMENTUM, delay=5), cluster(1, compute="normal(10ms,3ms)")),
    "constant delay, at once": (NOISY, lambda: ConstantDelay(ADAM, delay=4, filling="immediate"), cluster(1)),
    "asgd, losses and joins": (NOISY, lambda: ASGD(MOMENTUM), cluster(5, **BUSY, events=EVENTS)),
    "sync, losses and joins": (NOISY, lambda: Sync(MOMENTUM), cluster(5, compute="lognormal(10ms,6ms)", events=EVENTS)),
    "asgd, lost and back": (
        NOISY,
        lambda: ASGD(SGD),
        cluster(3, compute="normal(30ms,5ms)", events=["lose 1 at 40ms", "join 1 at 45ms", "lose 1 at 170ms"]),
    ),
}
LINKED: dict[str, Any] = {"compute": "lognormal(10ms,6ms)", "latency": "1ms", "bandwidth": "100kB/s"}
FAIR = {"bandwidth": "40kB/s", "sharing": "fair"}
PARTS: dict[str, Any] = {
    "in turn": {**LINKED, "server": {"bandwidth": "20kB/s"}},
    "equal shares": {**LINKED, "server": FAIR, "service": "exponential(1ms)"},
    "shards": {**BUSY, "server": {"bandwidth": "10kB/s", "shards": 4}},
    "cores": {"compute": "lognormal(10ms,6ms)", "cores": 2, "delay": "exponential(5ms)@0"},
    "one machine": {**BUSY, "cores": 2, "cores_for": "everything", "bandwidth": "unlimited"},
    "in turns": {**LINKED, "service": "1ms", "cores": 2, "cores_for": "everything", "slice": "exponential(3ms)"},
    "slow turns": {**BUSY, "cores": 2, "slice": "4ms", "slow": "3x for exp(20ms) every exp(50ms)"},
    "slow": {
        "compute": "normal(10ms,3ms)",
        "slow": ["3x for exp(20ms) every exp(50ms)", "2x for 5ms every 9ms together"],
    },
    "slow cores": {"compute": "normal(10ms,3ms)", "cores": 2, "slow": "3x for exp(20ms) every exp(50ms)"},
    "lost": {"compute": "lognormal(10ms,6ms)", "loss": "every exp(50ms), back after exp(20ms), notice 5ms, floor 2"},
    "everything": {
        "compute": "(2ms + 4ms/sample) * lognormal(1,0.5)",
        "speed": "2x@0",
        "nodes": 2,
        "cores": 1,
        "server": FAIR,
        "loss": "every exp(90ms), back after exp(20ms)@1-3",
        "slow": "3x for exp(20ms) every exp(50ms)",
        "latency": "1ms",
        "service": "exponential(1ms)",
        "link": {"between": "1ms"},
    },
}
CASES |= {f"asgd, {part}": (NOISY, lambda: ASGD(MOMENTUM), cluster(4, **values)) for part, values in PARTS.items()}
CASES |= {f"sync, {part}": (NOISY, lambda: Sync(SGD), cluster(4, **values)) for part, values in PARTS.items()}
TURNS: dict[str, Any] = {**PARTS["in turns"], "memory": "2ms"}
CASES |= {
    "all-reduce, in turns": (NOISY, lambda: AllReduceSGD(SGD), cluster(4, **TURNS)),
    "hogwild, in turns": (NOISY, lambda: Hogwild(SGD), cluster(4, **TURNS)),
    "gossip, in turns": (NOISY, lambda: ADPSGD(SGD), cluster(4, **TURNS)),
    "asgd, lost in turns": (NOISY, lambda: ASGD(SGD), cluster(5, **TURNS, events=EVENTS)),
    "sync, lost in turns": (NOISY, lambda: Sync(SGD), cluster(5, **TURNS, events=EVENTS)),
}
EVENTS_OF_A_CASE = 90


def state(sim: Sim) -> dict[str, Any]:
    """What two runs must have in common at the end: parameters, buffers, rows, and every account."""
    sim.finish()
    point = sim.point
    names = ("now", "updates", "samples", "samples_applied", "bytes", "queued", "served")
    return {
        "x": point.x if not isinstance(point.x, torch.Tensor) else point.x.tolist(),
        "buffers": {n: b.tolist() for n, b in (point.buffers or {}).items()},
        "rows": list(sim.rows),
        "draws": sim.feed.draws,
        "breakdown": sim.breakdown(),
        **{n: getattr(sim, n) for n in names},
        "server": (sim.link.free, sim.context.events.sequence),
    }


def reincarnate(sim: Sim, new: Sim) -> Sim:
    """A new simulator that goes on where the old one is, through JSON and copies as a file would have it."""
    tensors: dict[str, Any] = {}
    text = json.dumps(sim.save(tensors))
    new.restore(json.loads(text), {k: t.clone() for k, t in tensors.items()})
    new.rows[:] = sim.rows
    return new


def run_for(sim: Sim, events: int) -> None:
    if events:
        sim.run(Stop(ticks=events))


@pytest.mark.parametrize("name", CASES)
def test_a_restored_simulator_goes_on_with_the_same_bits(name):
    task, solver, machines = CASES[name]
    options = {"batch": 8, "seed": 11, "gap": True}
    whole = build(task(), solver(), machines, **options)
    run_for(whole, EVENTS_OF_A_CASE)
    expected = state(whole)
    rng = random.Random(name)
    for cuts in [sorted(rng.sample(range(1, EVENTS_OF_A_CASE), n)) for n in (1, 1, 1, 1, 2, 5)]:
        sim = build(task(), solver(), machines, **options)
        at = 0
        for cut in cuts:
            run_for(sim, cut - at)
            at, old = cut, sim
            sim = reincarnate(old, build(task(), solver(), machines, **options))
        run_for(sim, EVENTS_OF_A_CASE - at)
        assert state(sim) == expected, f"restored after events {cuts}"


@pytest.mark.parametrize("name", ["asgd, queue and link", "sync", "asgd, losses and joins", "asgd, everything"])
def test_a_restored_simulator_goes_on_after_every_single_event(name):
    task, solver, machines = CASES[name]
    whole = build(task(), solver(), machines, seed=2)
    run_for(whole, 40)
    expected = state(whole)
    for cut in range(1, 40):
        old = build(task(), solver(), machines, seed=2)
        run_for(old, cut)
        sim = reincarnate(old, build(task(), solver(), machines, seed=2))
        run_for(sim, 40 - cut)
        assert state(sim) == expected, f"restored after event {cut}"


def test_a_restored_simulator_may_have_another_pool():
    task, solver, machines = CASES["asgd, momentum, dropout"]
    whole = build(task(), solver(), machines, batch=8, threads=0)
    run_for(whole, 60)
    first = build(task(), solver(), machines, batch=8, threads=2)
    run_for(first, 25)
    second = reincarnate(first, build(task(), solver(), machines, batch=8, threads=3))
    run_for(second, 35)
    assert state(second) == state(whole)
    first.close()
    second.close()


@pytest.mark.parametrize("name", USABLE)
@pytest.mark.parametrize("make", [NOISY, DROPOUT], ids=["float64", "float32"])
def test_every_optimizer_goes_on_with_the_same_bits(name, make):
    def solver():
        return ASGD(optimizer_factory(name, lr=0.01))

    machines = cluster(3, compute="normal(10ms,3ms)")
    whole = build(make(), solver(), machines, batch=8)
    run_for(whole, 40)
    part = build(make(), solver(), machines, batch=8)
    run_for(part, 13)
    again = reincarnate(part, build(make(), solver(), machines, batch=8))
    run_for(again, 27)
    assert torch.equal(again.point.x, whole.point.x)


def test_a_checkpoint_stores_a_shared_vector_once():
    sim = build(Quadratic(8), Sync(SGD), cluster(50))
    tensors: dict[str, Any] = {}
    run_for(sim, 50)
    sim.save(tensors)
    # All 50 have read the same x: it, the initial one and the master.
    assert len([t for t in tensors.values() if t.numel() == 8]) <= 4


def test_vectors_of_a_checkpoint_lie_in_memory_as_new_ones_do(tmp_path):
    """Sums of numbers that begin elsewhere are rounded otherwise: torch begins where 64 bytes do."""
    odd = {f"t{k}": torch.arange(7.0 + 3 * k) for k in range(8)}
    folder = Folder(tmp_path)
    folder.write_tensors("checkpoint.safetensors", odd, "{}")
    read, _ = read_tensors(tmp_path, "checkpoint.safetensors", dict)
    sent = unpack(Codec(), *pack(Codec(), odd))
    assert all(torch.equal(found[name], odd[name]) for found in (read, sent) for name in odd)
    assert {t.data_ptr() % 64 for found in (read, sent) for t in found.values()} == {0}


def test_a_timing_only_simulation_can_be_restored_too():
    machines = cluster(5, **BUSY)
    whole = build(Idle(100), ASGD(SGD), machines)
    run_for(whole, 80)
    part = build(Idle(100), ASGD(SGD), machines)
    run_for(part, 33)
    tensors: dict[str, Any] = {}
    text = json.dumps(part.save(tensors))
    again = build(Idle(100), ASGD(SGD), machines)
    again.restore(json.loads(text), tensors)
    again.rows[:] = part.rows
    run_for(again, 47)
    assert (again.rows, again.now, again.bytes) == (whole.rows, whole.now, whole.bytes)


# -- the lab: crashed and run again in its folder ----------------------------------------------------------------------


class Crash(BaseException):
    """Not an Exception: nobody gets to tidy up, as with SIGKILL."""


def crash_after(monkeypatch: pytest.MonkeyPatch, ticks: int, *, checkpoint_at: int) -> None:
    """The next run is checkpointed after so many events and dies after so many more."""
    count = 0

    def tick(self: Watch) -> bool:
        nonlocal count
        count += 1
        if count == checkpoint_at:
            self.checkpoint()
        if count == ticks:
            raise Crash
        return False

    monkeypatch.setattr(Watch, "tick", tick)


def same(a: Run, b: Run) -> None:
    assert a.status == b.status
    assert a.why == b.why
    assert torch.equal(a.params, b.params)
    assert a.trace.equals(b.trace)
    assert a.metrics.to_pylist() == b.metrics.to_pylist()
    assert (a.best is None) == (b.best is None)
    if a.best is not None and b.best is not None:
        assert torch.equal(a.best.x, b.best.x)
    for point, other in ((a.point, b.point), (a.best, b.best)):
        if point is not None and point.buffers is not None:
            assert all(torch.equal(t, other.buffers[n]) for n, t in point.buffers.items())
    changing = ("run", "wall_seconds", "samples_per_second")
    assert {k: v for k, v in a.summary.items() if k not in changing} == {
        k: v for k, v in b.summary.items() if k not in changing
    }


PLANS = {
    "asgd/dropout": resume_targets.plan("asgd/dropout", 120),
    "asgd/norm": resume_targets.plan("asgd/norm", 120),
    "asgd-adam/global": resume_targets.plan("asgd-adam/global", 80),
    "sync/quadratic": resume_targets.plan("sync/quadratic", 60),
    "constant-delay/dropout": resume_targets.plan("constant-delay/dropout", 120),
    "seconds": replace(resume_targets.plan("asgd/dropout"), budget=Budget.parse("0.3s")),
    "per worker": replace(resume_targets.plan("asgd/dropout"), budget=Budget(Amount(2, "epochs"), per="worker")),
    "patience": replace(resume_targets.plan("asgd/norm", 2000), patience=3, evaluate_every=Amount(10, "updates")),
    "target": replace(resume_targets.plan("asgd/norm", 2000), budget=Budget.parse("accuracy=0.8")),
    "saves": replace(resume_targets.plan("asgd/dropout", 120), saves_per_epoch=4.0),
    "without best": replace(resume_targets.plan("asgd/dropout", 100), keep_best=False, gap=False),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_crashed_run_ends_like_one_that_was_not(name, tmp_path, monkeypatch):
    plan = PLANS[name]
    whole = execute(plan, tmp_path / "whole")
    rng = random.Random(name)
    with monkeypatch.context() as patch:
        for _ in range(3):
            at = rng.randrange(5, 60)
            crash_after(patch, at + rng.randrange(1, 20), checkpoint_at=at)
            with pytest.raises(Crash):
                execute(plan, tmp_path / "crashed")
            assert json.loads((tmp_path / "crashed" / "run.json").read_text())["status"] == "running"
    run = execute(plan, tmp_path / "crashed")
    same(run, whole)
    names = [sorted(str(p.relative_to(tmp_path / f)) for p in (tmp_path / f).rglob("*")) for f in ("whole", "crashed")]
    assert names[0] == names[1], "the same files, and no left-overs"
    for save in (tmp_path / "whole").glob("saves/*"):
        assert save.read_bytes() == (tmp_path / "crashed" / "saves" / save.name).read_bytes()


def test_a_run_that_died_before_its_first_checkpoint_starts_anew(tmp_path, monkeypatch):
    plan = PLANS["asgd/dropout"]
    with monkeypatch.context() as patch:
        crash_after(patch, 9, checkpoint_at=0)
        with pytest.raises(Crash):
            execute(plan, tmp_path / "run")
    same(execute(plan, tmp_path / "run"), execute(plan, tmp_path / "whole"))


def test_the_temporary_file_of_a_killed_writer_does_no_harm(tmp_path, monkeypatch):
    plan = PLANS["asgd/dropout"]
    with monkeypatch.context() as patch:
        crash_after(patch, 30, checkpoint_at=20)
        with pytest.raises(Crash):
            execute(plan, tmp_path / "run")
    for name in ("parts/.trace-000001.parquet.123.tmp", ".checkpoint.safetensors.123.tmp", ".run.json.123.tmp"):
        (tmp_path / "run" / name).write_bytes(b"half a fi")
    run = execute(plan, tmp_path / "run")
    assert run.status == "done"
    assert Run.load(tmp_path / "run").status == "done"
    assert not (tmp_path / "run" / "parts").exists()


def test_a_finished_run_is_shown_and_not_run_again(tmp_path, monkeypatch):
    plan = PLANS["asgd/dropout"]
    first = execute(plan, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(Sim, "run", lambda *_: pytest.fail("it ran again"))
        same(execute(plan, tmp_path / "run"), first)
    same(execute(plan, tmp_path / "run", again=True), first)


def test_what_a_run_gives_back_is_what_its_folder_holds(tmp_path):
    """Whether the trace was kept in memory or written in parts on the way."""
    for name, seconds in (("at once", 30.0), ("in parts", 0.0)):
        run = execute(PLANS["asgd/dropout"], tmp_path / name, checkpoint_seconds=seconds)
        read = Run.load(tmp_path / name)
        assert run.trace.equals(read.trace)
        assert run.metrics.equals(read.metrics)
        assert torch.equal(run.params, read.params)
        assert torch.equal(run.best.x, read.best.x)
        assert {**run.summary} == {**read.summary}
        assert (run.status, run.why, run.config) == (read.status, read.why, read.config)


def test_a_task_object_that_has_run_is_still_the_same_task(tmp_path, monkeypatch):
    """What was found out about its randomness is in run.json, and not in the run's address."""
    monkeypatch.chdir(tmp_path)
    task = mlp_task(lambda: nn.Dropout(0.4), fingerprint="mine")
    runs = [offbeat.train(task, ASGD(SGD), 2, budget="10updates", batch=8) for _ in range(2)]
    assert runs[0].path == runs[1].path
    assert runs[0].summary["wall_seconds"] == runs[1].summary["wall_seconds"]
    assert json.loads((runs[0].path / "run.json").read_text())["task"]["randomness"] == "keyed"


def test_different_quadratics_are_different_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tasks = [
        Quadratic(3),
        Quadratic(3),
        Quadratic(3, curvature=2.0),
        Quadratic(3, condition=2.0),
        Quadratic(3, batch=2),
    ]
    paths = [offbeat.train(task, ASGD(SGD), 2, budget="5updates").path for task in tasks]
    assert paths[0] == paths[1]
    assert len(set(paths)) == 4


# -- interruption ------------------------------------------------------------------------------------------------------


class Interrupt:
    """A callback that presses Ctrl-C at some evaluation."""

    def __init__(self, updates: int, number: int = signal.SIGINT) -> None:
        self.updates, self.number = updates, number

    def on_evaluation(self, metrics: dict[str, Any]) -> None:
        if metrics["updates"] >= self.updates > 0:
            self.updates = -1
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("name", ["asgd/dropout", "sync/quadratic", "asgd/norm"])
def test_an_interrupted_run_says_so_and_goes_on_with_the_same_bits(name, number, tmp_path):
    plan = replace(PLANS[name], evaluate_every=Amount(10, "updates"))
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    whole = execute(plan, tmp_path / "whole")
    for at in (20, 40):
        stopped = execute(plan, tmp_path / "run", callbacks=[Interrupt(at, number)])
        assert stopped.status == "interrupted"
        info = json.loads((tmp_path / "run" / "run.json").read_text())
        assert info["status"] == info["summary"]["status"] == "interrupted"
        assert stopped.summary["updates"] == info["summary"]["updates"] >= at  # not what an earlier stop said
    same(execute(plan, tmp_path / "run"), whole)
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before


def test_an_interruption_during_the_last_evaluation_does_not_add_an_update(tmp_path):
    plan = replace(PLANS["asgd/dropout"], evaluate_every=Amount(10, "updates"))
    whole = execute(plan, tmp_path / "whole")
    execute(plan, tmp_path / "run", callbacks=[Interrupt(120)])
    run = execute(plan, tmp_path / "run")
    assert run.summary["updates"] == 120
    same(run, whole)


@pytest.mark.parametrize("at", [20, 60])
def test_ctrl_c_in_python_saves_the_run_and_is_then_raised(at, tmp_path, monkeypatch):
    """In the middle, and at the last evaluation, when the run ends all the same."""
    monkeypatch.chdir(tmp_path)
    words = {"budget": "60updates", "evaluate_every": "10updates"}
    whole = offbeat.train("quadratic", "asgd", 3, out="whole", **words)
    with pytest.raises(KeyboardInterrupt, match="run is saved"):
        offbeat.train("quadratic", "asgd", 3, out="run", callbacks=[Interrupt(at)], **words)
    left = json.loads(Path("run/run.json").read_text())
    assert left["status"] == ("done" if at == 60 else "interrupted")
    same(offbeat.train("quadratic", "asgd", 3, out="run", **words), whole)


def test_ctrl_c_of_a_run_in_memory_ends_it(tmp_path):
    words = {"budget": "60updates", "evaluate_every": "10updates", "out": False}
    with pytest.raises(KeyboardInterrupt):
        offbeat.train("quadratic", callbacks=[Interrupt(20)], **words)


# -- what is refused, in one line --------------------------------------------------------------------------------------


@pytest.fixture
def unfinished(tmp_path, monkeypatch):
    """A folder with a checkpoint."""
    with monkeypatch.context() as patch:
        crash_after(patch, 30, checkpoint_at=20)
        with pytest.raises(Crash):
            execute(PLANS["asgd/dropout"], tmp_path / "run")
    return tmp_path / "run"


def refused(folder: Path, match: str, plan: Any = None) -> None:
    with pytest.raises(StoreError, match=match) as caught:
        execute(plan or PLANS["asgd/dropout"], folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    info = json.loads((folder / "run.json").read_text())
    change(info)
    (folder / "run.json").write_text(json.dumps(info))


def test_a_folder_in_use_is_refused(unfinished):
    holder = Folder(unfinished)
    holder.acquire()
    refused(unfinished, f"in use: process {os.getpid()} is running it, since 20")
    holder.release()
    assert execute(PLANS["asgd/dropout"], unfinished).status == "done"


def test_a_newer_format_is_refused(unfinished):
    edit(unfinished, lambda info: info.update(format=FORMAT + 1))
    refused(unfinished, "newer offbeat")


@pytest.mark.parametrize("name", ["torch", "offbeat"])
def test_another_version_is_refused(unfinished, name):
    edit(unfinished, lambda info: info["versions"].update({name: "0.0.1"}))
    refused(unfinished, f"started with {name} 0.0.1")
    same(execute(PLANS["asgd/dropout"], unfinished, again=True), execute(PLANS["asgd/dropout"], None))


def test_another_configuration_is_refused(unfinished):
    refused(unfinished, "another configuration", replace(PLANS["asgd/dropout"], key="other"))


@pytest.mark.parametrize("keep", [0, 7, 100, 0.5, 0.99])
def test_a_truncated_checkpoint_is_refused(unfinished, keep):
    file = unfinished / "checkpoint.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
    refused(unfinished, "cannot be read")


@pytest.mark.parametrize("metadata", [None, {}, {"offbeat": "{}"}, {"offbeat": "[]"}, {"offbeat": "{"}])
def test_a_foreign_checkpoint_is_refused(unfinished, metadata):
    file = unfinished / "checkpoint.safetensors"
    save_file(load_file(file), file, metadata=metadata)
    refused(unfinished, "checkpoint")


def test_a_checkpoint_without_its_tensors_is_refused(unfinished):
    _, note = read_tensors(unfinished, "checkpoint.safetensors", dict)
    save_file({"t0": torch.zeros(3)}, unfinished / "checkpoint.safetensors", metadata={"offbeat": json.dumps(note)})
    refused(unfinished, "checkpoint")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "one"}'])
def test_a_damaged_run_json_is_refused(unfinished, text):
    (unfinished / "run.json").write_text(text)
    refused(unfinished, "run.json")


def test_a_missing_part_of_the_trace_is_refused(unfinished):
    next((unfinished / "parts").glob("*.parquet")).unlink()
    refused(unfinished, "parts")


# -- killed from outside -----------------------------------------------------------------------------------------------

# A server that has torch loaded forks each child: starting a process takes a tenth of a second instead of three.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["torch", "torch._dynamo", "offbeat.lab.api"])


def child(name: str, updates: int, out: Path, pool: int = 0) -> Any:
    process = processes.Process(target=resume_targets.run, args=(name, updates, str(out), 0.01, pool))
    process.start()
    return process


def wait_for(condition: Callable[[], bool], process: Any, what: str, seconds: float = 120.0) -> bool:
    """True when it holds, False when the process ended first."""
    end = time.monotonic() + seconds
    while not condition():
        if not process.is_alive():
            return False
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.002)
    return True


def kill_until_done(name: str, updates: int, out: Path, kills: int, pool: int) -> int:
    """Starts the run again and again, each time killed at a random moment; how often it was hit alive."""
    rng = random.Random(f"{name} {pool}")
    hits = 0
    for _ in range(kills):
        process = child(name, updates, out, pool)
        before = (out / "run.json").stat().st_mtime_ns if (out / "run.json").exists() else 0

        def begun(before: int = before) -> bool:
            try:
                return (out / "run.json").stat().st_mtime_ns != before
            except FileNotFoundError:  # not yet, or cleared by a run that found no checkpoint
                return False

        if wait_for(begun, process, "the run to begin"):
            time.sleep(rng.expovariate(8.0))
            hits += process.is_alive()
            process.kill()
        process.join(30)
    process = child(name, updates, out, pool)
    process.join(240)
    assert process.exitcode == 0
    return hits


def check_killed(name: str, updates: int, tmp_path: Path, *, kills: int, least: int, pool: int = 0) -> None:
    """On a machine that ends the run before enough kills have hit it, the run is made longer."""
    while kill_until_done(name, updates, tmp_path / str(updates), kills, pool) < least:
        updates *= 2
        assert updates < 100_000, f"kills do not hit a run of {updates // 2} updates"
    whole = execute(resume_targets.plan(name, updates), tmp_path / "whole", pool=0)
    same(Run.load(tmp_path / str(updates)), whole)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["asgd/dropout", "sync/norm"])
def test_a_killed_run_ends_like_one_that_was_not(name, tmp_path):
    check_killed(name, 1000 if name.startswith("asgd") else 250, tmp_path, kills=6, least=3)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pool", [0, 2])
@pytest.mark.parametrize("name", ["asgd/norm", "asgd-adam/global", "sync/dropout", "constant-delay/dropout"])
def test_kill_storm(name, pool, tmp_path):
    updates = 900 if name.startswith("sync") else 4000
    check_killed(name, updates, tmp_path, kills=24, least=12, pool=pool)


@pytest.mark.timeout(240)
def test_ctrl_c_from_outside_and_a_second_process_on_the_folder(tmp_path):
    out = tmp_path / "run"
    process = child("asgd/dropout", 1500, out)
    assert wait_for(lambda: (out / "checkpoint.safetensors").exists(), process, "a checkpoint")
    plan = resume_targets.plan("asgd/dropout", 1500)
    refused(out, "in use", plan)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    assert process.exitcode == 0
    assert json.loads((out / "run.json").read_text())["status"] == "interrupted"
    same(execute(plan, out), execute(plan, tmp_path / "whole", pool=0))
