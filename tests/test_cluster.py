"""The cluster value: parsing and its inverse, message and all-reduce costs against step-by-step counts, refusals."""

import json
import math
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.core.errors import ConfigError
from offbeat.engines.cluster import AllReduceCost, Cluster, Event, PerWorker
from offbeat.engines.cluster.distributions import ZERO, Constant, Exponential, Gamma, Normal, Pareto
from offbeat.engines.cluster.spelling import SPELLINGS


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
    ({"allreduce": "rnig"}, "unknown allreduce 'rnig' (did you mean 'ring'?); known: hierarchical, ring"),
    ({"allreduce": "ring(8)"}, "allreduce must be 'ring', 'hierarchical' or 'hierarchical(8)', got 'ring(8)'"),
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
