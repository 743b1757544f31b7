"""Timing-only simulation: three loops, from the most general to the fastest, that agree event for event."""

import json
import sys
from functools import partial

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import offbeat
from harness import Stop, cluster
from offbeat import cli
from offbeat import solvers as offbeat_solvers
from offbeat.core.feed import Feed
from offbeat.core.trace import Row
from offbeat.engines.clock import columns as slotted
from offbeat.engines.clock.general import Timing
from offbeat.engines.sim import Sim
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.parameter_server import ParameterServer
from offbeat.solvers.sync import Sync
from offbeat.tasks.idle import Idle

SGD = partial(torch.optim.SGD, lr=0.1)
COUNTERS = ("now", "updates", "samples", "samples_applied", "bytes", "queued", "served")

times = st.sampled_from(
    ["1s", "normal(1s,0.3s)", "exponential(1s)", "normal(0.1s,0.5s)", "lognormal(1s,2s)", "0s", "empirical(1s,2s)"]
)


MACHINES = (
    {"server": {"bandwidth": "1kB/s"}},
    {"server": {"bandwidth": "2kB/s", "sharing": "fair"}},
    {"server": {"bandwidth": "500B/s", "shards": 3}},
    {"speed": ["2x", "0.5x@0"]},
    {"slow": ["3x for exp(1s) every exp(2s)", "2x for 0.5s every 1s together@0"]},
    {"slow": "5x@0"},
    {"cores": 1},
    {"cores": 2, "nodes": 1},
    {"cores": 2, "slice": "exponential(0.3s)"},
    {"cores": 1, "cores_for": "everything"},
    {"cores": 2, "cores_for": "everything", "slice": "0.4s"},
    {"loss": "every exp(2s), back after exp(1s)@0"},
    {"loss": "every exp(2s), back after exp(1s), notice 0.4s"},
    {"loss": "every exp(3s), floor 1"},
)
"""Parts that a cluster may have besides; most have none or one."""


@st.composite
def clusters(draw, events=False):
    W = draw(st.integers(1, 7))
    happenings = []
    if events:
        for i in range(1, W):
            at = draw(st.floats(0.05, 3.0))
            for what in draw(st.sampled_from(["", "lose", "join lose", "lose join"])).split():
                happenings.append(f"{what} {i} at {at!r}s")
                at += draw(st.floats(0.01, 2.0))
    machines = {}
    for part in draw(st.lists(st.sampled_from(MACHINES), max_size=2)):
        machines |= {k: v for k, v in part.items() if not (k == "loss" and (happenings or W == 1))}
    if machines.get("cores_for") == "everything":
        machines.pop("server", None)  # a machine of its own
    return cluster(
        W,
        **machines,
        compute=[draw(times), *(f"{draw(times)}@{i}" for i in draw(st.sets(st.integers(0, W - 1), max_size=3)))],
        delay=draw(st.sampled_from([[], ["exponential(2s)@0"], ["0.5s", "normal(0.2s,0.1s)"]])),
        latency=draw(st.sampled_from([0.0, 0.0, 0.3])),
        bandwidth=draw(st.sampled_from(["unlimited", "unlimited", "1kB/s"])),
        service=draw(st.sampled_from(["0s", "0.1s", "exponential(0.3s)", "normal(0.05s,0.1s)"])),
        events=happenings,
    )


def simulated(kind, solver, machines, *, seed=0, updates=float("inf"), seconds=float("inf"), nbytes=100, batch=3):
    sim = kind(
        Idle(nbytes, batch=batch),
        solver,
        machines,
        Feed(None, batch=batch, workers=machines.workers, seed=seed),
        seed=seed,
        resumable=False,
    )
    sim.deadline = seconds
    sim.run(Stop(updates=updates).watch(sim))
    sim.finish()
    return sim


def same(a, b):
    assert a.rows == b.rows
    for name in COUNTERS:
        assert getattr(a, name) == getattr(b, name), name
    assert a.breakdown() == b.breakdown()
    assert a.feed.draws == b.feed.draws


SOLVERS = {
    "asgd": lambda: ASGD(SGD),
    "sync": lambda: Sync(SGD),
    "gate": lambda: ParameterServer(SGD, gate=lambda s, arrival: arrival.tau < 2),
    "some": lambda: ParameterServer(SGD, collect=lambda s: len(s.held) // 3 * 3),
    "overlap": lambda: offbeat_solvers.build("asgd", SGD, {"overlap": True}),
}


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(events=True), st.sampled_from(list(SOLVERS)), st.integers(0, 99), st.sampled_from([1, 7, 60]))
def test_the_written_out_loop_is_the_simulator_event_for_event(machines, name, seed, updates):
    a, b = (simulated(kind, SOLVERS[name](), machines, seed=seed, updates=updates) for kind in (Sim, Timing))
    same(a, b)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(events=True), st.sampled_from(list(SOLVERS)), st.sampled_from([0.5, 3.0, 10.0]))
def test_the_written_out_loop_ends_on_the_dot_too(machines, name, seconds):
    a, b = (simulated(k, SOLVERS[name](), machines, seconds=seconds, updates=300) for k in (Sim, Timing))
    same(a, b)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize(
    "machines",
    [
        cluster(3, schedule=[(k * 0.1, k % 3) for k in range(1, 50)]),
        cluster(4, compute="exponential(1s)", feeder="exponential(0.4s)", service="0.1s"),
        cluster(4, compute="exponential(1s)", delay="1s@2", latency="0.2s", service="exponential(0.1s)"),
    ],
    ids=["scripted", "with a feeder", "over links"],
)
def test_the_written_out_loop_leaves_the_unusual_to_the_simulator(machines, name):
    a, b = (simulated(kind, SOLVERS[name](), machines, updates=30) for kind in (Sim, Timing))
    assert a.updates > 3
    same(a, b)


def check_slotted(machines, seed, updates, seconds):
    """False where the fast loop gives up, or is not asked."""
    if slotted.why_not(ASGD(SGD), machines) is not None:
        return False
    found = slotted.run(machines, seed=seed, nbytes=100, batch=3, updates=updates, seconds=seconds)
    if found is None:
        return False
    sim = simulated(Sim, ASGD(SGD), machines, seed=seed, updates=updates, seconds=seconds)
    names = [n for n in Row._fields if n in found.columns]
    applied = [{n: v for n, v in zip(Row._fields, r, strict=True) if n in names} for r in sim.rows[: found.updates]]
    columns = {n: found.columns[n].tolist() for n in names}
    assert [dict(zip(names, values, strict=True)) for values in zip(*columns.values(), strict=True)] == applied
    left_out = {n: v for r in sim.rows[: found.updates] for n, v in zip(Row._fields, r, strict=True) if n not in names}
    assert {v for n, v in left_out.items() if n != "outcome"} <= {None}
    assert found.tail == sim.rows[found.updates :]
    for name in ("now", "updates", "bytes", "queued", "served"):
        assert getattr(found, name) == getattr(sim, name), name
    for mine, general in zip(found.shares, sim.breakdown(), strict=True):
        assert mine == pytest.approx(general, abs=1e-9)
    return True


@pytest.mark.parametrize("many", [1, 400], ids=["in windows", "one by one"])
def test_the_slotted_loop_is_the_simulator_event_for_event(many, monkeypatch):
    """Both ways to serve: a window of arrivals at a time, which is for many workers, and one by one."""
    monkeypatch.setattr(slotted, "MANY", many)

    @settings(deadline=None, max_examples=120, suppress_health_check=[HealthCheck.too_slow])
    @given(clusters(), st.integers(0, 99), st.sampled_from([1, 2, 9, 70]), st.sampled_from([0.7, 4.0, 1e9]))
    def check(machines, seed, updates, seconds):
        check_slotted(machines, seed, updates, seconds)

    check()


@pytest.mark.parametrize("service", ["0s", "1ms", "exponential(4ms)", "50ms"])
@pytest.mark.parametrize("latency", ["0s", "30ms"])
@pytest.mark.parametrize("many", [1, 400], ids=["in windows", "one by one"])
def test_the_slotted_loop_does_not_give_up_on_usual_clusters(service, latency, many, monkeypatch):
    monkeypatch.setattr(slotted, "MANY", many)
    machines = cluster(
        40, compute="normal(1s,0.2s)", delay="exponential(1s)@3-5", latency=latency, service=service, bandwidth="1kB/s"
    )
    assert check_slotted(machines, 0, 1500, float("inf"))
    assert check_slotted(machines, 1, float("inf"), 25.0)
    assert slotted.why_not(ASGD(SGD), machines) is None


LINKED = (
    {"server": {"bandwidth": "4kB/s"}, "service": "normal(5ms,2ms)"},
    {"server": {"bandwidth": "4kB/s"}, "latency": "30ms"},
    {"server": {"bandwidth": "1kB/s", "shards": 3}, "bandwidth": "2kB/s", "service": "exponential(9ms)"},
    {"server": {"bandwidth": "2kB/s"}, "bandwidth": "2kB/s", "latency": "30ms", "delay": "exponential(1s)@3-5"},
)


@pytest.mark.parametrize("values", LINKED, ids=["served", "at once", "shards", "narrow"])
@pytest.mark.parametrize("many", [1, 400], ids=["in windows", "one by one"])
def test_the_slotted_loop_passes_the_servers_link(values, many, monkeypatch):
    monkeypatch.setattr(slotted, "MANY", many)
    machines = cluster(40, compute="normal(1s,0.2s)", **values)
    for limits in ((1500, float("inf")), (float("inf"), 25.0), (1, float("inf")), (float("inf"), 0.9)):
        assert check_slotted(machines, 0, *limits)


@pytest.mark.parametrize("values", LINKED, ids=["served", "at once", "shards", "narrow"])
@pytest.mark.parametrize("name", SOLVERS)
def test_the_written_out_loop_passes_the_servers_link(values, name):
    machines = cluster(40, compute="normal(1s,0.2s)", **values)
    for limits in ({"updates": 400}, {"seconds": 25.0}, {"updates": 1}, {"seconds": 0.9}):
        same(*(simulated(kind, SOLVERS[name](), machines, **limits) for kind in (Sim, Timing)))


def test_rules_that_wait_refuse_or_lose_workers_are_left_to_the_general_loop():
    assert "Sync" in slotted.why_not(Sync(SGD), cluster(3))
    assert slotted.why_not(SOLVERS["gate"](), cluster(3)) is not None
    assert "lost" in slotted.why_not(ASGD(SGD), cluster(3, events=["lose 1 at 2s"]))
    assert "scripted" in slotted.why_not(ASGD(SGD), cluster(1, schedule=[(1.0, 0)]))
    assert "feeder" in slotted.why_not(ASGD(SGD), cluster(2, feeder="1ms"))
    assert "lost" in slotted.why_not(ASGD(SGD), cluster(3, loss="every 1h@1"))
    assert "slow" in slotted.why_not(ASGD(SGD), cluster(3, slow="2x for 1s every 1s"))
    assert "cores" in slotted.why_not(ASGD(SGD), cluster(3, cores=1))
    assert "share" in slotted.why_not(ASGD(SGD), cluster(3, server={"bandwidth": 1, "sharing": "fair"}))


# -- the front doors -----------------------------------------------------------------------------------------------


def test_simulate_gives_the_same_trace_by_either_loop():
    machines = cluster(30, compute="lognormal(1s,0.5s)", latency="10ms", bandwidth="1MB/s", service="exponential(5ms)")
    fast, slow = (offbeat.simulate(machines, "asgd", updates=2000, nbytes=10_000, loop=x) for x in ("auto", "general"))
    assert (fast.summary["loop"], slow.summary["loop"]) == ("slotted", "general")
    assert fast.trace.equals(slow.trace)
    ignored = ("loop", "wall_seconds", "updates_per_wall_second")
    assert {k: v for k, v in fast.summary.items() if k not in ignored} == pytest.approx(
        {k: v for k, v in slow.summary.items() if k not in ignored}
    )


def test_simulate_says_what_queueing_theory_says():
    """A server that takes D serves 1 / D a second when it is the bottleneck; W workers of 1 s otherwise W a second."""
    busy = offbeat.simulate(cluster(200, compute="1s", service="10ms"), updates=20_000).summary
    assert busy["updates_per_virtual_second"] == pytest.approx(100, rel=0.02)
    assert busy["server_busy_share"] == pytest.approx(1.0, rel=0.02)
    assert busy["mean_staleness"] == pytest.approx(199, rel=0.02)
    assert busy["idle_share"] == pytest.approx(0.5, rel=0.05)
    assert busy["mean_queue_length"] == pytest.approx(99, rel=0.05)
    free = offbeat.simulate(cluster(50, compute="normal(1s,0.2s)", service="0.1ms"), seconds=100.0).summary
    assert free["updates_per_virtual_second"] == pytest.approx(50, rel=0.03)
    assert free["virtual_seconds"] == 100.0
    waiting = offbeat.simulate(cluster(5, compute="exponential(1s)"), "sync", updates=3000).summary
    assert waiting["virtual_seconds"] / 3000 == pytest.approx(1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5, rel=0.05)
    assert waiting["loop"] == "general"


@pytest.mark.parametrize("name", [n for n in offbeat_solvers.SOLVERS if n not in ("plain", "constant-delay")])
def test_every_solver_can_be_timed(name):
    found = offbeat.simulate(cluster(4, compute="exponential(1s)", service="1ms"), name, updates=20)
    assert found.summary["updates"] >= 20


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "updates or seconds"),
        ({"updates": 0}, "positive"),
        ({"seconds": 1.0, "cluster": cluster(2, compute="0s")}, "never ends"),
        ({"updates": 5, "nbytes": -1}, "nbytes"),
        ({"updates": 10**12}, r"the times of 2 workers and their gradients need about 600TB of memory, but only"),
        ({"updates": 10**9, "solver": "sync"}, "need about 1.2TB of memory"),
        ({"seconds": 1e7}, "need about 1.2TB of memory"),
        ({"updates": 5, "solver": "agsd"}, "did you mean 'asgd'"),
        ({"updates": 50, "cluster": cluster(1, events=["lose 0 at 1s"], compute="0.3s")}, "no worker is left"),
    ],
)
def test_bad_input_is_refused_in_one_line(options, match):
    with pytest.raises(offbeat.ConfigError, match=match) as caught:
        offbeat.simulate(**{"cluster": cluster(2), **options})
    assert "\n" not in str(caught.value)


def command(monkeypatch, capsys, *args):
    monkeypatch.setattr(sys, "argv", ["offbeat", "time", *args])
    with pytest.raises(SystemExit):
        cli.main()
    return capsys.readouterr().out


def test_solvers_are_compared_in_samples_a_second_since_updates_are_of_different_sizes(monkeypatch, capsys):
    # Twelve equal workers, a second each, a server that takes no time: both rules apply 12 gradients a second.
    equal = ("--workers", "12", "--compute", "1s", "--service", "0s", "--budget", "60s")
    found = json.loads(command(monkeypatch, capsys, "--solver", "sync,asgd", *equal, "--json"))
    assert [s["samples_per_virtual_second"] for s in found] == pytest.approx([12, 12])
    assert [s["updates_per_virtual_second"] for s in found] == pytest.approx([1, 12])
    table = command(monkeypatch, capsys, "--solver", "sync,asgd", *equal)
    assert table.splitlines()[0].split()[:3] == ["solver", "samples/s", "updates/s"]
    assert [line.split()[:3] for line in table.splitlines()[1:3]] == [["sync", "12", "1"], ["asgd", "12", "12"]]


def test_a_repeated_compute_describes_further_workers(monkeypatch, capsys):
    one = ("--solver", "asgd", "--workers", "2", "--service", "0s", "--budget", "40s", "--json", "--compute", "1s")
    found = json.loads(command(monkeypatch, capsys, *one, "--compute", "4s@1"))
    assert found["samples"] == 40 + 10


def test_the_command_line_times_thousands_of_workers(monkeypatch, capsys):
    args = [
        "time",
        "--workers",
        "3200",
        "--compute",
        "normal(1s,0.2s)",
        "--service",
        "0.1ms",
        "--budget",
        "5000updates",
        "--json",
    ]
    monkeypatch.setattr(sys, "argv", ["offbeat", *args])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    found = json.loads(capsys.readouterr().out)
    assert (found["workers"], found["updates"], found["solver"]) == (3200, 5000, "asgd")
    monkeypatch.setattr(sys, "argv", ["offbeat", "time", "--budget", "3epochs"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "updates or virtual seconds" in capsys.readouterr().err
