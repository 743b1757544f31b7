"""Methods that need memory which all workers share, on a Ray cluster: on one machine, or not at all."""

from math import inf

import pytest
import torch

from harness import Stop
from offbeat import solvers
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.engines.cluster import Cluster
from offbeat.engines.ray.host import About
from offbeat.engines.ray.on_ray import OnRay
from offbeat.engines.ray.ray_options import RayOptions
from offbeat.engines.real.site import Fault, Options
from offbeat.lab.contract.recorder import Bowl
from offbeat.optim.steppers import optimizer_factory
from real import to_its_end

SGD = optimizer_factory("sgd", lr=0.05)


def build(name, crew, *, options=None, ray=None, **given):
    rule, feed = solvers.build(name, SGD, given), Feed(None, batch=1, workers=2, seed=7)
    made = {"seed": 7, "options": options, "ray": ray, "crew": crew}
    return OnRay(Bowl(), rule, Cluster(workers=2), feed, **made)


class FarApart:
    """A crew whose processes are on machines of their own."""

    def start(self, ranks):
        return {rank: About(f"10.0.0.{rank + 2}", 1, {}) for rank in ranks}


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", ["hogwild", "ea-wild", "ad-psgd"])
def test_across_machines_it_is_refused_with_the_reason(crew, name):
    """`crew`: Ray is connected, as it is when processes have been placed."""
    engine = build(name, FarApart())
    why = "needs memory that all workers share, and they are on several machines \\(10.0.0.1, 10.0.0.2, 10.0.0.3\\)"
    with pytest.raises(ConfigError, match=why):
        engine.processes.open()
    engine.close()


def test_without_shared_memory_it_is_refused_before_anything_starts():
    with pytest.raises(ConfigError, match=r"Hogwild needs memory that all workers share: leave ray\.shared_memory out"):
        build("hogwild", FarApart(), ray=RayOptions(shared_memory="off"))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("lost", [None, 1])
def test_what_everybody_added_to_the_shared_vector_is_what_is_there(crew, lost):
    """Under a lock nothing is undone by others, also if a worker is lost on the way: the kernel takes its lock back."""
    faults = () if lost is None else (Fault("kill", 5, worker=lost),)
    engine = to_its_end(
        build("hogwild", crew, options=Options(quota=40, faults=faults), locked=True), Stop(updates=inf)
    )
    assert engine.ended == "idle"
    assert engine.updates == 80
    assert engine.lost_share == pytest.approx(0.0, abs=1e-9)
    assert torch.isfinite(engine.x).all()
