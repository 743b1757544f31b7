"""Cores that everything on one machine shares: what can be worked out by hand, and what can never be exceeded."""

import pytest

import offbeat
from harness import cluster

ONE_MACHINE = {"cores_for": "everything"}


def update_times(found, n):
    return [row["time"] for row in found.trace.to_pylist() if row["applied"]][:n]


def test_equal_shares_of_one_core_are_those_of_a_calculation_by_hand():
    """Two workers, 10 s of computing, 2 s of service, one core.

    Both compute at half speed and are ready at 20 s. Worker 0 is served alone, until 22 s. Its next gradient shares the
    core with the service of worker 1: 2 s of it take 4 s, until 26 s. Of worker 0's gradient 8 s are left, which take
    16 s beside worker 1's, until 42 s. Then 2 s of worker 1's gradient are left, and the service takes 2 s: 4 s.
    """
    machine = cluster(2, compute="10s", service="2s", cores=1, **ONE_MACHINE)
    assert update_times(offbeat.simulate(machine, "asgd", updates=3), 3) == pytest.approx([22, 26, 46])


def test_turns_on_one_core_are_those_of_a_calculation_by_hand():
    """The same with slices of 4 s: 0-4, 8-12 and 16-18 are worker 0's, 4-8, 12-16 and 20-22 worker 1's.

    The server, which has slept, is served ahead of who waits: from 18 to 20 s, and from 22 to 24 s. After that the same
    again.
    """
    machine = cluster(2, compute="10s", service="2s", cores=1, slice="4s", **ONE_MACHINE)
    assert update_times(offbeat.simulate(machine, "asgd", updates=6), 6) == pytest.approx([20, 24, 44, 48, 68, 72])


def test_a_process_that_goes_on_keeps_its_core_and_its_turn():
    """Each round 3 s of computing and two messages of 1 s, and a server that takes no time: nobody ever sleeps.

    So worker 0 has the one core for its slice of 12 s, in which it makes updates at 4 and 9 s, and then worker 1.
    """
    machine = cluster(2, compute="3s", latency="1s", cores=1, slice="12s", **ONE_MACHINE)
    found = offbeat.simulate(machine, "asgd", updates=5)
    assert update_times(found, 5) == pytest.approx([4, 9, 12 + 4, 12 + 9, 24 + 2])
    assert [row["worker"] for row in found.trace.to_pylist()][:5] == [0, 0, 1, 1, 0]


@pytest.mark.parametrize("slices", ["0s", "4ms", "exponential(4ms)", "1s"])
@pytest.mark.parametrize(("workers", "cores"), [(1, 1), (1, 3), (2, 2), (3, 2), (8, 3)])
@pytest.mark.parametrize("solver", ["asgd", "sync", "allreduce", "hogwild"])
def test_nobody_gets_more_than_there_is(solver, workers, cores, slices):
    """What was done for each gradient never adds up to more than cores x time; without a barrier a crowd needs it."""
    words = {"latency": "0.5ms", "service": "1ms", "memory": "0.5ms", "cores": cores, "slice": slices}
    machine = cluster(workers, compute="normal(10ms, 1ms)", **words, **ONE_MACHINE)
    found = offbeat.simulate(machine, solver, updates=120 // workers if solver in ("sync", "allreduce") else 120)
    done = sum(row["applied"] for row in found.trace.to_pylist())
    # Two messages and a service; an all-reduce of a ring, 2 (W - 1) messages; two passes over memory.
    each = {"asgd": 12, "sync": 12, "allreduce": 10 + (workers - 1), "hogwild": 11}[solver] / 1000
    now = found.summary["virtual_seconds"]
    share = done * each / (cores * now)
    assert share < 1.02
    if solver in ("asgd", "hogwild") and workers > cores:
        assert share > 0.93
    if workers == 1:
        assert now == pytest.approx(done * each, rel=0.03)  # it has no rival but itself


def test_short_slices_are_equal_shares():
    words = {"compute": "lognormal(10ms, 2ms)", "latency": "1ms", "service": "1ms", "cores": 2, **ONE_MACHINE}
    equal, short, long = (
        offbeat.simulate(cluster(5, slice=slices, **words), "asgd", updates=400).summary
        for slices in ("0s", "0.05ms", "50ms")
    )
    assert short["samples_per_virtual_second"] == pytest.approx(equal["samples_per_virtual_second"], rel=0.02)
    assert short["computing_share"] == pytest.approx(equal["computing_share"], rel=0.05)
    # With slices longer than a gradient nothing is interrupted: gradients take 10 ms, and wait for a core instead.
    each = long["computing_share"] * 5 / long["samples_per_virtual_second"]
    assert each < 0.013
    assert equal["computing_share"] * 5 / equal["samples_per_virtual_second"] > 0.018


def test_computing_alone_leaves_messages_and_the_server_their_time():
    """Four workers on two cores, 10 ms each; 5 ms of service at a time: computing needs both cores, the server none."""
    words = {"compute": "10ms", "service": "5ms", "cores": 2}
    free = offbeat.simulate(cluster(4, **words), "asgd", updates=400).summary["samples_per_virtual_second"]
    bound = offbeat.simulate(cluster(4, **words, **ONE_MACHINE), "asgd", updates=400)
    assert free == pytest.approx(200, rel=0.02)
    assert bound.summary["samples_per_virtual_second"] == pytest.approx(2 / 0.015, rel=0.03)


def test_the_fast_loop_steps_aside_where_cores_are_shared():
    machine = cluster(4, compute="10ms", service="1ms", cores=8, **ONE_MACHINE)
    assert offbeat.simulate(machine, "asgd", updates=50).summary["loop"] == "general"
