"""The ways of a vector on a Ray cluster: through shared memory, over sockets, encrypted, in parts, through Ray's calls.

The same bits on each; and the processes keep nothing of a run that is over.
"""

from math import inf
from pathlib import Path

import pytest
import torch

from cases import CASES
from harness import Stop
from offbeat.core.feed import Feed
from offbeat.engines.cluster import Cluster
from offbeat.engines.ray.crew import SERVER
from offbeat.engines.ray.on_ray import OnRay
from offbeat.engines.ray.ray_options import RayOptions
from offbeat.engines.real.site import Fault, Options
from offbeat.engines.replay import Entry, Replay
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers.asgd import ASGD
from real import long_task, setting, simulated, to_its_end

pytestmark = [pytest.mark.slow, pytest.mark.processes]
WAYS = {
    "memory": RayOptions(),
    "sockets": RayOptions(shared_memory="off"),
    "encrypted": RayOptions(shared_memory="off", encryption="on"),
    "calls": RayOptions(shared_memory="off", transport="actor"),
    "calls and memory": RayOptions(transport="actor"),
}
SOLVERS = ("sync", "local-sgd")
ORDERLY = list({c.solver: c for c in CASES if c.solver in SOLVERS and c.options.get("order") != "arrival"}.values())


def build(crew, rule, way, task, feed, seed, workers, options):
    return OnRay(task, rule, Cluster(workers=workers), feed, seed=seed, options=options, ray=WAYS[way], crew=crew)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", ORDERLY, ids=str)
def test_the_bits_do_not_depend_on_the_way(crew, case, way):
    given = {name: value for name, value in setting(case).items() if name in ("task", "feed", "seed", "workers")}
    engine = to_its_end(build(crew, case.make(), way, **given, options=Options(quota=12)), Stop(updates=inf))
    sim = simulated(case.make(), **given, updates=inf, samples_per_worker=12)
    assert engine.updates == sim.updates
    assert torch.equal(engine.x, sim.point.x)


@pytest.mark.parametrize("way", WAYS)
def test_long_vectors_come_as_they_were_sent_and_a_lost_server_loses_none(crew, way):
    task, rule = long_task(), ASGD(optimizer_factory("sgd", lr=0.05))
    options = Options(quota=6 * 4, faults=(Fault("kill", 5, life=1),))
    feed = Feed(task.size, batch=4, workers=2, seed=3)
    engine = to_its_end(build(crew, rule, way, task, feed, 3, 2, options), Stop(updates=inf))
    assert (engine.updates, engine.lost_updates) == (12, 0)
    replay = Replay(task, rule, Feed(task.size, batch=4, workers=2, seed=3), engine.world, seed=3)
    replay.follow(Entry(*entry) for entry in engine.journal)
    assert torch.equal(engine.x, replay.parameters)


def test_no_process_keeps_memory_of_a_run_that_is_over(crew):
    """Whether they ended by themselves, or their server was killed."""
    import ray

    task, rule = long_task(), ASGD(optimizer_factory("sgd", lr=0.05))
    feed = Feed(task.size, batch=4, workers=2, seed=3)
    to_its_end(build(crew, rule, "memory", task, feed, 3, 2, Options(quota=16)), Stop(updates=inf))
    pids = [about.pid for about in ray.get([crew.host(rank).about.remote() for rank in (SERVER, 0, 1)])]
    for pid in pids:
        assert "memfd:offbeat" not in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
        held = [fd.readlink() for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink()]
        assert not any("memfd:offbeat" in str(path) for path in held)


def test_processes_keep_the_memory_of_large_vectors(crew):
    """Threads other than the first do so only with one arena, and the first is Ray's."""
    import ray

    pid = ray.get(crew.host(SERVER).about.remote()).pid
    assert "MALLOC_ARENA_MAX=1" in Path(f"/proc/{pid}/environ").read_text(encoding="utf-8").split("\0")
