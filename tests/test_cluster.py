"""The cluster value: parsing and its inverse, message and all-reduce costs against step-by-step counts, refusals."""

import json
import math
import random
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.core.errors import ConfigError
from offbeat.engines.cluster import AllReduceCost, Cluster, Event, PerWorker
from offbeat.engines.cluster.distributions import ZERO, Constant, Exponential, Gamma, Normal, Pareto
from offbeat.engines.cluster.spelling import SPELLINGS
from offbeat.lab.config import make


def test_every_setting_has_a_spelling():
    assert list(SPELLINGS) == [field.name for field in fields(Cluster)]


def test_parse_reads_what_people_write():
    cluster = Cluster.parse(
        workers=8,
        compute=["normal(10ms,2ms)", "20ms@7"],
        delay="30ms@0",
        latency="1ms",
        bandwidth="10Gbps",
        service="0.1ms",
        allreduce="hierarchical(4)",
        events=["lose 3 at 1.5s", "join 7 at 500ms"],
        schedule=[["100ms", 0], [0.2, 1]],
    )
    assert cluster == Cluster(
        workers=8,
        compute=(PerWorker(Normal(0.01, 0.002), None), PerWorker(Constant(0.02), (7,))),
        delay=(PerWorker(Constant(0.03), (0,)),),
        latency=0.001,
        bandwidth=1.25e9,
        service=Constant(0.0001),
        allreduce=AllReduceCost("hierarchical", 4),
        events=(Event(7, 0.5, "join"), Event(3, 1.5, "lose")),
        schedule=((0.1, 0), (0.2, 1)),
    )


def test_defaults():
    cluster = Cluster.parse()
    assert cluster == Cluster()
    assert (cluster.workers, cluster.compute_of(0), cluster.delays_of(0)) == (1, Constant(0.01), ())
    assert cluster.transfer_time(10**9) == 0
    assert cluster.schedule is None


def test_later_compute_overrides_and_delays_add_up():
    cluster = Cluster.parse(workers=4, compute=["10ms", "20ms@1-3", "50ms@2"], delay=["1ms", "2ms@2", "3ms@1-2"])
    assert [cluster.compute_of(w).mean for w in range(4)] == [0.01, 0.02, 0.05, 0.02]
    assert [[d.mean for d in cluster.delays_of(w)] for w in range(4)] == [
        [0.001],
        [0.001, 0.003],
        [0.001, 0.002, 0.003],
        [0.001],
    ]


def test_at_all_is_all():
    assert Cluster.parse(workers=2, delay="1ms@all").delay == (PerWorker(Constant(0.001)),)


def test_transfer_time():
    cluster = Cluster(latency=0.002, bandwidth=1e6)
    assert cluster.transfer_time(500_000) == pytest.approx(0.502, rel=1e-12)


def ring_by_steps(num_bytes, num_workers, latency, bandwidth):
    """Every step sends one of W chunks over every link at once: W - 1 steps to reduce, W - 1 to gather."""
    chunk = num_bytes / num_workers
    return sum(latency + chunk / bandwidth for _ in range(num_workers - 1) for _ in ("reduce", "gather"))


def hierarchical_by_steps(num_bytes, num_workers, group, latency, bandwidth):
    groups = [range(first, min(first + group, num_workers)) for first in range(0, num_workers, group)]
    gather = max(sum(latency + num_bytes / bandwidth for _ in members[1:]) for members in groups)
    return gather + ring_by_steps(num_bytes, len(groups), latency, bandwidth) + gather


@settings(deadline=None)
@given(
    num_bytes=st.integers(0, 10**9),
    num_workers=st.integers(1, 40),
    group=st.integers(1, 50),
    latency=st.floats(0, 1),
    bandwidth=st.floats(1, 1e12) | st.just(math.inf),
)
def test_allreduce_costs_its_steps(num_bytes, num_workers, group, latency, bandwidth):
    ring = Cluster(latency=latency, bandwidth=bandwidth)
    expected = ring_by_steps(num_bytes, num_workers, latency, bandwidth)
    assert ring.allreduce_time(num_bytes, num_workers) == pytest.approx(expected, rel=1e-9)
    grouped = replace(ring, allreduce=AllReduceCost("hierarchical", group))
    expected = hierarchical_by_steps(num_bytes, num_workers, group, latency, bandwidth)
    assert grouped.allreduce_time(num_bytes, num_workers) == pytest.approx(expected, rel=1e-9)


def test_one_worker_reduces_for_free():
    for kind in ("ring", "hierarchical"):
        assert Cluster(latency=1, bandwidth=1, allreduce=AllReduceCost(kind)).allreduce_time(10**6, 1) == 0


def test_alone_keeps_only_the_base_compute_time():
    cluster = Cluster.parse(
        workers=3, compute=["5ms", "gamma(10ms, 2ms)", "30ms@0"], delay="1s", latency="1ms", bandwidth="1Gbps",
        service="1ms", events=["lose 1 at 1s"], schedule=[[1, 0]],
    )  # fmt: skip
    assert cluster.alone() == Cluster(workers=1, compute=(PerWorker(Gamma(0.01, 0.002)),))
    named = Cluster.parse(workers=2, compute=["20ms@0", "10ms@1"])
    assert named.alone().compute_of(0) == Constant(0.02)


def test_first_join():
    cluster = Cluster.parse(workers=4, events=["join 1 at 2s", "lose 1 at 3s", "lose 2 at 1s", "join 2 at 5s"])
    assert [cluster.first_join(w) for w in range(4)] == [0, 2, 0, 0]


def test_events_are_kept_in_time_order():
    events = ["join 2 at 5s", "lose 0 at 1s", "lose 2 at 6s", "join 0 at 5s"]
    ordered = Cluster.parse(workers=3, events=events).events
    assert [(e.at, e.worker, e.kind) for e in ordered] == [
        (1, 0, "lose"),
        (5, 0, "join"),
        (5, 2, "join"),
        (6, 2, "lose"),
    ]


def test_a_join_at_zero_is_present_at_zero():
    assert Cluster.parse(workers=1, events="join 0 at 0s").first_join(0) == 0


times = st.floats(0, 1e9)
distributions = st.one_of(
    times.map(Constant), times.map(Exponential), st.builds(Normal, times, times), st.just(Pareto(0.01, 2.5))
)


@st.composite
def clusters(draw):
    workers = draw(st.integers(1, 6))
    some = st.none() | st.sets(st.integers(0, workers - 1), min_size=1).map(lambda names: tuple(sorted(names)))
    entries = st.lists(st.builds(PerWorker, distributions, some), max_size=3)
    events = []
    for worker in range(1, workers):  # worker 0 stays, so that someone is there at time 0
        moments = sorted(draw(st.sets(times, max_size=3)))
        first = draw(st.booleans())
        events += [Event(worker, at, "join" if (k % 2 == 0) == first else "lose") for k, at in enumerate(moments)]
    finishes = sorted(draw(st.sets(times, max_size=5)))
    schedule = tuple((at, draw(st.integers(0, workers - 1))) for at in finishes)
    return Cluster(
        workers=workers,
        compute=(PerWorker(draw(distributions)), *draw(entries)),
        delay=tuple(draw(entries)),
        latency=draw(times),
        bandwidth=draw(st.floats(1e-3, 1e15) | st.just(math.inf)),
        service=draw(distributions),
        allreduce=draw(st.builds(AllReduceCost, st.sampled_from(["ring", "hierarchical"]), st.integers(1, 99))),
        events=tuple(draw(st.permutations(events))),
        schedule=schedule or None,
    )


@settings(deadline=None)
@given(clusters())
def test_the_plain_form_reads_back_to_an_equal_value(cluster):
    plain = json.loads(json.dumps(cluster.to_dict(), allow_nan=False))
    again = Cluster.parse(**plain)
    assert again == cluster
    assert hash(again) == hash(cluster)
    assert again.to_dict() == cluster.to_dict()


REFUSED = [
    ({"workers": 0}, "workers must be a whole number from 1, got 0"),
    ({"workers": 1.5}, "workers must be a whole number from 1, got 1.5"),
    ({"workers": "8"}, "workers must be a whole number from 1, got '8'"),
    ({"workers": 10**11}, "workers must be at most 1,000,000, got 100,000,000,000"),
    ({"workers": True}, "workers must be a whole number from 1, got True"),
    ({"workers": 8, "delay": "30ms@9"}, "delay names worker 9, but there are 8 workers: 0-7"),
    ({"workers": 8, "compute": ["10ms", "30ms@2-8"]}, "compute names worker 8, but there are 8 workers: 0-7"),
    ({"delay": "30ms@1"}, "delay names worker 1, but there is 1 worker: 0"),
    ({"delay": "30ms@x"}, "delay must be like '0,3-5', 'all' or one of 0, got 'x'"),
    ({"delay": "30ms@"}, "delay must be like"),
    ({"delay": "@0"}, "delay must be a time or a distribution"),
    ({"delay": "norml(1,2)@0"}, "unknown distribution for delay 'norml' (did you mean 'normal'?)"),
    ({"workers": 4, "compute": "1ms@0-1"}, "compute gives no time for workers 2-3"),
    ({"compute": []}, "compute gives no time for workers 0"),
    ({"compute": None}, "compute must be a time or a distribution"),
    ({"latency": "-1ms"}, "latency must be a time of 0 or more"),
    ({"latency": math.inf}, "latency must be a time of 0 or more"),
    ({"bandwidth": 0}, "bandwidth must be above 0 bytes per second, got 0.0"),
    ({"bandwidth": "10 lightyears"}, "bandwidth must be a rate of 0 or more"),
    ({"bandwidth": math.nan}, "bandwidth must be a rate of 0 or more"),
    ({"service": "never"}, "unknown distribution for service 'never'"),
    ({"allreduce": "rnig"}, "unknown allreduce 'rnig' (did you mean 'ring'?); known: auto, halving-doubling"),
    (
        {"allreduce": "ring(8)"},
        "allreduce must be 'ring', 'hierarchical', 'hierarchical(8)', 'halving-doubling' or 'auto', got 'ring(8)'",
    ),
    ({"allreduce": "hierarchical(0)"}, "allreduce group must be a whole number from 1, got 0"),
    ({"allreduce": 8}, "allreduce must be 'ring'"),
    ({"events": "lose 3"}, "events must be like 'lose 3 at 1.5s' or 'join 7 at 2s', got 'lose 3'"),
    ({"events": ["lost 0 at 1s"]}, "unknown event 'lost' (did you mean 'lose'?); known: join, lose"),
    ({"events": ["lose 0 at noon"]}, "event time must be a time of 0 or more"),
    ({"events": [3]}, "events must be like"),
    ({"workers": 2, "events": ["lose 2 at 1s"]}, "events names worker 2, but there are 2 workers: 0-1"),
    (
        {"workers": 2, "events": ["lose 1 at 1s", "lose 1 at 2s"]},
        "joins and losses of a worker must alternate, got 'lose 1 at 1s', 'lose 1 at 2s'",
    ),
    (
        {"workers": 2, "events": ["join 1 at 2s", "join 1 at 1s"]},
        "joins and losses of a worker must alternate, got 'join 1 at 1s', 'join 1 at 2s'",
    ),
    (
        {"workers": 2, "events": ["join 1 at 2s", "lose 1 at 2s"]},
        "events of one worker need different times, got 'join 1 at 2s' and 'lose 1 at 2s'",
    ),
    ({"events": "join 0 at 1s"}, "at least one worker must be present at time 0, got events ['join 0 at 1s']"),
    ({"workers": 2, "events": ["join 0 at 1s", "lose 1 at 0s"]}, "at least one worker must be present at time 0"),
    ({"schedule": []}, "schedule must hold at least one (finish time, worker) pair"),
    ({"schedule": 3}, "schedule must be a list, got 3"),
    ({"schedule": [[1, 2, 3]]}, "schedule must hold (finish time, worker) pairs, got [1, 2, 3]"),
    ({"schedule": [0.1]}, "schedule must hold (finish time, worker) pairs, got 0.1"),
    ({"schedule": [[-1, 0]]}, "schedule time must be a time of 0 or more"),
    ({"schedule": [[1, 1]]}, "schedule names worker 1, but there is 1 worker: 0"),
    ({"schedule": [[1, "0"]]}, "schedule names worker '0', but there is 1 worker: 0"),
    ({"workers": 2, "schedule": [[2, 0], [1, 1]]}, "schedule times must not decrease, got 1.0 after 2.0"),
    ({"schedule": [[1, 0], [1, 0]]}, "schedule times of worker 0 must increase, got 1.0 twice"),
    ({"wokers": 8}, "unknown cluster setting 'wokers' (did you mean 'workers'?); known: allreduce, bandwidth, compute"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=lambda case: str(case)[:40])
def test_refusals_are_one_line(values, message):
    with pytest.raises(ConfigError) as refusal:
        Cluster.parse(**values)
    assert str(refusal.value).startswith(message)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (Cluster, {"workers": 2, "delay": (PerWorker(ZERO, (2,)),)}),
        (Cluster, {"compute": Constant(0.01)}),
        (Cluster, {"compute": ("10ms",)}),
        (Cluster, {"latency": "1ms"}),
        (Cluster, {"latency": math.nan}),
        (Cluster, {"bandwidth": math.nan}),
        (Cluster, {"bandwidth": -1.0}),
        (Cluster, {"bandwidth": 10**400}),
        (Cluster, {"bandwidth": "1GB/s"}),
        (Cluster, {"service": 0.1}),
        (Cluster, {"allreduce": "ring"}),
        (Cluster, {"events": ("lose 0 at 1s",)}),
        (PerWorker, {"distribution": 0.1}),
        (PerWorker, {"distribution": ZERO, "workers": ()}),
        (PerWorker, {"distribution": ZERO, "workers": (-1,)}),
        (Event, {"worker": -1, "at": 0.0, "kind": "join"}),
        (Event, {"worker": 0, "at": -1.0, "kind": "join"}),
        (Event, {"worker": 0, "at": 0.0, "kind": "leave"}),
        (AllReduceCost, {"kind": "ring", "group": 0}),
    ],
    ids=lambda case: str(case)[:40],
)
def test_values_made_in_python_are_checked_too(make, values):
    with pytest.raises(ConfigError) as refusal:
        make(**values)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("ask", [Cluster.compute_of, Cluster.delays_of, Cluster.first_join])
def test_questions_about_absent_workers_are_refused(ask):
    with pytest.raises(ConfigError, match="worker 3, but there are 3 workers: 0-2"):
        ask(Cluster(workers=3), 3)


def test_an_allreduce_needs_workers():
    with pytest.raises(ConfigError, match="from 1, got 0"):
        Cluster().allreduce_time(8, 0)


def test_same_time_on_two_workers_is_a_valid_schedule():
    assert Cluster.parse(workers=2, schedule=[[1, 0], [1, 1]]).schedule == ((1.0, 0), (1.0, 1))


# -- machines as people have them -----------------------------------------------------------------------------------

WRITTEN = [
    ({"compute": "2ms + 0.12ms/sample"}, {"compute": ["2ms + 120us/sample"]}),
    ({"compute": "normal(2ms, 0.1ms) + 0.12ms/sample"}, {"compute": ["normal(2ms, 100us) + 120us/sample"]}),
    ({"compute": "2ms + 1ms/sample * lognormal(1, 0.5)"}, {"compute": ["2ms + lognormal(1ms, 500us)/sample"]}),
    ({"compute": "(2ms + 1ms/sample) * gamma(1, 0.25)"}, {"compute": ["(2ms + 1ms/sample) * gamma(1.0, 0.25)"]}),
    ({"compute": ["1e-3 + 1e+0/sample", "0.5ms/sample@1"]}, {"compute": ["1ms + 1s/sample", "500us/sample@1"]}),
    ({"compute": "2ms * exponential(1)"}, {"compute": ["exponential(2ms)"]}),
    ({"compute": "normal(2ms, 25%)"}, {"compute": ["normal(2ms, 500us)"]}),
    ({"speed": ["2x@0-2", "0.5x"]}, {"speed": ["2.0x@0-2", "0.5x"]}),
    ({"slow": "3x@3"}, {"slow": ["3.0x@3"]}),
    (
        {"slow": ["3x for exp(20s) every exp(200s)@all", "2x for 1s every 9s together@0-1"]},
        {"slow": ["3.0x for exponential(20s) every exponential(200s)", "2.0x for 1s every 9s together@0-1"]},
    ),
    (
        {"loss": "every exp(1h), back after lognormal(60s, 0.5)"},
        {"loss": ["every exponential(1h), back after lognormal(1min, 500ms)"]},
    ),
    (
        {"loss": "floor 2, notice 30s, every 1h@1-3"},
        {"loss": ["every 1h, notice 30s, floor 2@1-3"]},
    ),
    ({"cores": 2}, {"cores": 2}),
    ({"cores": 2, "cores_for": "computing", "slice": 0}, {"cores": 2}),
    (
        {"cores": 2, "cores_for": "everything", "slice": "exp(3ms)"},
        {"cores": 2, "cores_for": "everything", "slice": "exponential(3ms)"},
    ),
    (
        {"server": {"bandwidth": "10Gbps", "sharing": "fair", "shards": 4}},
        {"server": {"bandwidth": "10Gbps", "sharing": "fair", "shards": 4}},
    ),
    ({"server": {"sharing": "fifo", "shards": 1}}, {}),
    (
        {"nodes": 4, "racks": 2, "link": {"inside": "2us, 100Gbps", "between": "10Gbps", "racks": "1ms"}},
        {"nodes": 4, "racks": 2, "link": {"inside": "2us, 100Gbps", "between": "0s, 10Gbps", "racks": "1ms"}},
    ),
    ({"allreduce": "auto"}, {"allreduce": "auto"}),
]


@pytest.mark.parametrize(("values", "expected"), WRITTEN, ids=lambda case: str(case)[:40])
def test_a_machine_is_written_as_it_is_read(values, expected):
    usual = Cluster(workers=4).to_dict()
    cluster = Cluster.parse(workers=4, **values)
    plain = json.loads(json.dumps(cluster.to_dict(), allow_nan=False))
    assert {k: v for k, v in plain.items() if v != usual.get(k)} == expected
    again = Cluster.parse(**plain)
    assert (again, hash(again), again.to_dict()) == (cluster, hash(cluster), cluster.to_dict())


def test_what_is_not_set_is_not_written():
    old = {"workers", "compute", "delay", "latency", "bandwidth", "service", "allreduce", "events", "peers", "memory"}
    assert set(Cluster.parse(workers=3).to_dict()) == old | {"feeder"}


SPOILT = [
    ({"compute": "2ms + 3ms"}, "compute takes one time for each batch and one for each sample, got '2ms + 3ms'"),
    ({"compute": "2ms + 1ms/batch"}, "compute must be a time or a distribution"),
    ({"compute": "2ms * normal(1s, 1s)"}, "compute: a factor of noise has no unit, such as 'lognormal(1, 0.1)'"),
    ({"compute": "normal(2ms, 1ms) * gamma(1, 1)"}, "compute: only a plain time takes a factor of noise"),
    ({"compute": "(1ms + 1ms/sample) * 0"}, "compute: a factor of noise must be above 0 on average"),
    ({"compute": "(1ms + 1ms/sample) + 1ms"}, "compute must be a time or a distribution"),
    ({"delay": "2ms + 1ms/sample"}, "delay must be a time or a distribution"),
    ({"compute": "trace(nowhere.csv)"}, "compute: there is no file nowhere.csv with recorded times"),
    ({"compute": "trace()"}, "compute: a recording is written like 'trace(times.csv)'"),
    ({"speed": "fast"}, "speed must begin with a factor, such as '2x' or '0.5x', got 'fast'"),
    ({"speed": 2}, "speed must be like '2x' or '0.5x@0-3', got 2"),
    ({"speed": "-2x"}, "speed must be a finite factor above 0, such as '2x', got -2.0"),
    ({"speed": "2x@4"}, "speed names worker 4, but there are 4 workers: 0-3"),
    ({"slow": "0x"}, "slow must be a finite factor above 0"),
    ({"slow": "3x for 1s"}, "slow must be like '3x@7' or '3x for exp(20s) every exp(200s)@all', got '3x for 1s'"),
    ({"slow": "3x for 0s every 0s"}, "slow must change its state after some time"),
    ({"cores_for": "everything"}, "cores_for has no effect without cores, got 'everything'"),
    ({"cores": 2, "cores_for": "all"}, "unknown cores_for 'all'"),
    ({"slice": "3ms"}, "slice has no effect without cores, got '3ms'"),
    ({"cores": 2, "slice": "-3ms"}, "slice must be a time or a distribution"),
    (
        {"cores": 2, "cores_for": "everything", "server": {"bandwidth": "1Gbps"}},
        "cores_for = 'everything' is one machine, server and all: server has no place beside it",
    ),
    ({"cores": 2, "cores_for": "everything", "nodes": 2}, "cores_for = 'everything' is one machine, server and all: n"),
    ({"cores": 0}, "cores must be a whole number from 1, got 0"),
    ({"server": "10Gbps"}, "server must be a section with keys, such as server.bandwidth, got '10Gbps'"),
    ({"server": {"bandwith": 1}}, "unknown cluster setting 'server.bandwith' (did you mean 'server.bandwidth'?)"),
    ({"server": {"bandwidth": "-1Gbps"}}, "server.bandwidth must be a rate of 0 or more"),
    ({"server": {"bandwidth": 0}}, "server.bandwidth must be above 0 bytes per second, got 0.0"),
    ({"server": {"sharing": "fair"}}, "server.sharing has no effect without server.bandwidth, got 'fair'"),
    ({"server": {"bandwidth": 1, "sharing": "equal"}}, "unknown server.sharing 'equal'"),
    ({"server": {"shards": 0}}, "server.shards must be a whole number from 1, got 0"),
    ({"server": {"shards": 4}}, "server.shards has no effect without server.bandwidth or service"),
    ({"loss": "every exp(1h)"}, "loss leaves nobody of 4 workers: add 'back after ...', or 'floor 1'"),
    ({"loss": ["every 1h@0-1", "every 2h@2-3"]}, "loss leaves nobody of 4 workers"),
    ({"loss": ["every 1h@0-1", "every 2h, floor 1@1"]}, "loss has two entries for worker 1: give one of them"),
    ({"loss": "every 1h@1", "events": "lose 1 at 1s"}, "loss and events both name worker 1: give one of them"),
    ({"loss": "every 1h, floor 4"}, "loss: floor must be below the number of workers, 4, got 4"),
    ({"loss": "every 0s, floor 1"}, "loss: every must be above 0 on average, got '0s'"),
    ({"loss": "back after 1s"}, "loss needs 'every' and a time"),
    ({"loss": "every 1h, until noon"}, "loss must be like"),
    ({"loss": "every 1h, floor x"}, "loss: floor must be a whole number of workers from 0, got 'x'"),
    ({"loss": "every -1h, floor 1"}, "loss: every must be a time or a distribution"),
    ({"nodes": 5}, "nodes must be at most the number of workers, 4, got 5"),
    ({"nodes": 2, "racks": 3}, "racks must be at most the number of nodes, 2, got 3"),
    ({"racks": 2}, "racks needs nodes: say on how many machines the workers are"),
    ({"link": {"between": "1ms"}}, "link.between needs nodes: say on how many machines the workers are"),
    ({"nodes": 2, "link": {"racks": "1ms"}}, "link.racks needs racks: say in how many of them the nodes are"),
    ({"nodes": 2, "link": {"between": "1ms, 2ms"}}, "link.between takes one latency and one bandwidth"),
    ({"nodes": 2, "link": {"within": "1ms"}}, "unknown cluster setting 'link.within'"),
    ({"schedule": [[1, 0]], "speed": "2x"}, "schedule says when every gradient is finished: speed has no effect"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "message"), SPOILT, ids=lambda case: str(case)[:40])
def test_a_machine_that_cannot_be_is_refused_in_one_line(values, message):
    with pytest.raises(ConfigError) as refusal:
        Cluster.parse(workers=4, **values)
    assert str(refusal.value).startswith(message)
    assert len(str(refusal.value).splitlines()) == 1


def test_a_recording_has_a_column_for_each_worker(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "times.csv").write_text("a,b\n1,20ms\n2,\n0.5,30ms\n")
    cluster = Cluster.parse(workers=3, compute=["1s", "trace(times.csv)@0,2"])
    draws = [cluster.draw_times(i, lambda first, n: 1, seed=0) for i in range(3)]
    assert [[d.next() for _ in range(5)] for d in draws] == [[1, 2, 0.5, 1, 2], [1] * 5, [0.02, 0.03, 0.02, 0.03, 0.02]]
    with pytest.raises(ConfigError, match=r"times.csv has times of 2 workers, one in each column, but 3 need them"):
        Cluster.parse(workers=3, compute="trace(times.csv)")
    plain = cluster.to_dict()
    assert Cluster.parse(**plain) == cluster
    (tmp_path / "times.csv").write_text("1,2\n")
    assert Cluster.parse(**plain) == cluster, "what a run had can be told without the file"
    with pytest.raises(ConfigError, match="has changed since"):
        Cluster.parse(**plain).draw_times(0, lambda first, n: 1, seed=0).next()


def test_a_batch_takes_its_samples_times_their_time():
    cluster = Cluster.parse(workers=2, compute="2ms + 0.5ms/sample", speed="2x@1")
    assert cluster.draw_times(0, lambda first, n: 16, seed=0).next() == pytest.approx(0.010, rel=1e-12)
    assert cluster.draw_times(1, lambda first, n: 16, seed=0).next() == pytest.approx(0.005, rel=1e-12)
    assert [cluster.mean_compute(i, 4) for i in range(2)] == pytest.approx([0.004, 0.002])


def test_noise_has_the_mean_that_it_says():
    cluster = Cluster.parse(compute="(normal(2ms, 1ms) + 1ms/sample) * lognormal(1, 0.3)")
    draws = cluster.draw_times(0, lambda first, n: 8, seed=0)
    times = [draws.next() for _ in range(20_000)]
    assert sum(times) / len(times) == pytest.approx(0.010, rel=0.02)
    assert cluster.mean_compute(0, 8) == pytest.approx(0.010, rel=0.02)


def test_workers_are_placed_on_nodes_and_racks_in_order():
    places = Cluster.parse(workers=10, nodes=4, racks=2).topology
    assert [places.node_of(i) for i in range(10)] == [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    assert [places.rack_of(i) for i in range(10)] == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]


# -- many entries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [5, 60])
def test_what_is_for_a_worker_is_found_as_if_one_looked_at_every_entry(entries):
    rng = random.Random(entries)
    names = ["", "@all", *(f"@{i}" for i in range(12)), "@0-5", "@3,7-9"]
    compute = ["10ms", *(f"{k + 1}ms{rng.choice(names)}" for k in range(entries))]
    delay = [f"{k + 1}ms{rng.choice(names)}" for k in range(entries)]
    factors = [f"{k + 2}x{rng.choice(names)}" for k in range(entries)]
    cluster = Cluster.parse(workers=12, compute=compute, delay=delay, speed=factors, slow=factors)

    def those(of, worker):
        return [entry for entry in of if entry.workers is None or worker in entry.workers]

    for worker in range(12):
        assert cluster.compute_of(worker) == those(cluster.compute, worker)[-1].distribution
        assert list(cluster.delays_of(worker)) == [e.distribution for e in those(cluster.delay, worker)]
        assert cluster.speed_of(worker) == ([1.0] + [e.factor for e in those(cluster.speed, worker)])[-1]
        assert [cluster.slow[k] for k, _ in cluster.slowness_of(worker)] == those(cluster.slow, worker)
        assert [entry for _, entry in cluster.slowness_of(worker)] == those(cluster.slow, worker)


def test_among_many_entries_only_a_workers_own_are_looked_at(monkeypatch):
    """As many entries as workers: looking at all of them for everybody would take hours."""
    cluster = Cluster.parse(workers=50, compute=["10ms", *(f"{i + 1}ms@{i}" for i in range(50))])
    monkeypatch.setattr("offbeat.engines.cluster.named.is_named", lambda *asked: pytest.fail("an entry was looked at"))
    assert [cluster.compute_of(i).mean for i in range(50)] == [pytest.approx((i + 1) / 1000) for i in range(50)]


@pytest.mark.parametrize("setting", ["compute", "delay", "speed", "slow", "events", "peers", "loss"])
def test_more_entries_than_anybody_types_are_refused_before_one_is_read(setting):
    with pytest.raises(ConfigError, match=f"{setting} takes at most 100,000 entries, got 100,001"):
        Cluster.parse(workers=2, **{setting: ["what is this"] * 100_001})


def test_entries_that_name_more_workers_than_fit_in_memory_are_refused():
    with pytest.raises(ConfigError, match="the entries of delay name more than 4,000,000 workers in all"):
        Cluster.parse(workers=1_000_000, delay=["1ms@0-999999"] * 100_000)


def test_the_number_of_workers_is_known_without_reading_the_cluster_again(monkeypatch):
    config = make(
        {"task": "quadratic", "cluster": {"workers": 3}, "data": {"global_batch": 6}, "scale": {"lr": "linear"}}
    )
    monkeypatch.setattr(Cluster, "parse", lambda **values: pytest.fail("it was read again"))
    assert (config.workers, config.batch, config.lr) == (3, 2, 3 * config.optimizer.lr)
