"""What rules ask of each other in the simulator: messages, waiting, averages, reductions, shared memory."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from harness import Stop, build, cluster
from offbeat.core.effects import AllReduce, Applied, Grad, Lock, Send, SharedRead, Stepped, Unlock, Wait
from offbeat.core.solver import Solver
from offbeat.solvers.allreduce import AllReduceSGD
from offbeat.solvers.hogwild import Hogwild
from offbeat.tasks.idle import Idle
from peers import Flat, run_for, sgd


@dataclass(slots=True)
class State:
    rank: int
    x: Any
    heard: list[Any] = field(default_factory=list)
    k: int = 0
    version: int = 0


@dataclass(slots=True)
class Note:
    value: Any
    text: str


class Bare(Solver):
    """A rule in one function, for these tests."""

    records = (State, Note)
    asks = frozenset({Grad, Send, Wait, AllReduce, SharedRead, Lock, Unlock})

    def __init__(self, rule):
        self.rule = rule

    def init_server(self, x0, world):
        return State(-1, x0)

    def init_worker(self, rank, x0, world):
        return State(rank, x0)

    def round(self, w):
        yield from self.rule(w)
        w.k += 1

    def on_message(self, w, sender, message):
        w.heard.append((sender, message.text))
        yield from ()

    def parameters(self, s, workers):
        return s.x


def once(w):
    """The gradient that every round needs to take time."""
    g = yield Grad(w.x)
    yield Applied(w.rank, g)
    yield Stepped()


def test_messages_of_one_sender_never_overtake_each_other():
    """A small message is sent just after a large one that takes 80 ms; both ways of arriving out of order fail."""

    def rule(w):
        yield from once(w)
        if w.rank == 0 and w.k < 3:
            for size in (80_000, 8, 0, 8):
                yield Send((1,), Note(torch.zeros(size // 8, dtype=torch.float64), f"{w.k}: {size}"))

    sim = run_for(5.0, Flat(), Bare(rule), cluster(2, bandwidth="1MB/s", compute="10ms"))
    texts = [text for _, text in sim.workers[1].state.heard]
    assert texts == [f"{k}: {size}" for k in range(3) for size in (80_000, 8, 0, 8)]


def test_each_pair_has_its_own_latency():
    times = {}

    class Clocked(Bare):
        def on_message(self, w, sender, message):
            times[sender, w.rank] = sim.now
            yield from ()

    def rule(w):
        yield from once(w)
        if w.k == 0:
            yield Send(tuple(j for j in range(3) if j != w.rank), Note(None, ""))

    sim = build(Flat(), Clocked(rule), cluster(3, compute="1s", peers=["10ms", "300ms@0>2"]))
    sim.deadline = 1.9
    sim.run(Stop().watch(sim))
    assert {k: round(t - 1.0, 9) for k, t in times.items()} == {
        (i, j): 0.3 if {i, j} == {0, 2} else 0.01 for i in range(3) for j in range(3) if i != j
    }


def test_send_says_who_is_there():
    def rule(w):
        yield from once(w)
        w.heard.append((yield Send((1, 2), Note(None, ""))))

    sim = run_for(0.035, Flat(), Bare(rule), cluster(3, compute=["10ms", "1s@1-2"], events=["lose 1 at 15ms"]))
    assert sim.workers[0].state.heard == [(1, 2), (2,), (2,)]


def test_waiting_ends_with_the_next_message_or_with_the_loss_of_the_peer():
    def rule(w):
        yield from once(w)
        if w.rank == 0:
            w.heard.append(("waited", (yield Wait(1))))
        elif w.k == 0:
            yield Send((0,), Note(None, "hello"))

    machines = cluster(2, compute=["10ms@0", "25ms@1"], latency="5ms", events=["lose 1 at 70ms"])
    sim = run_for(0.2, Flat(), Bare(rule), machines)
    heard = sim.workers[0].state.heard
    assert heard[:3] == [(1, "hello"), ("waited", True), ("waited", False)]
    assert all(h == ("waited", False) for h in heard[2:]), "and nobody waits for the dead"


def test_the_last_words_of_a_lost_peer_still_arrive():
    def rule(w):
        yield from once(w)
        if w.rank == 1:
            yield Send((0,), Note(None, "last"))
        else:
            w.heard.append(("waited", (yield Wait(1))))

    machines = cluster(2, compute=["10ms@0", "30ms@1"], peers="500ms", events=["lose 1 at 31ms"])
    sim = run_for(0.6, Flat(), Bare(rule), machines)
    assert sim.workers[0].state.heard[:3] == [(1, "last"), ("waited", True), ("waited", False)]


def test_a_member_of_weight_nothing_only_listens():
    answers = {}

    def rule(w):
        yield from once(w)
        if w.k == 0:
            value = torch.tensor([float(w.rank)], dtype=torch.float64)
            answers[w.rank] = yield AllReduce(value, weight=float(w.rank))
            answers[w.rank, "cast"] = yield AllReduce(value if w.rank == 2 else None, weight=float(w.rank == 2))
            answers[w.rank, "none"] = yield AllReduce(None, weight=0.0)

    run_for(0.05, Flat(), Bare(rule), cluster(3))
    for i in range(3):
        assert answers[i].value.item() == pytest.approx((1 + 4) / 3)
        assert (answers[i].weight, answers[i].members) == (3.0, (0, 1, 2))
        assert answers[i, "cast"].value.item() == 2.0
        assert answers[i, "none"].value is None


def test_a_broadcast_takes_half_the_time_of_an_all_reduce():
    def rule(listening):
        def inner(w):
            yield from once(w)
            if w.k == 0:
                yield AllReduce(w.x, weight=0.0 if listening and w.rank else 1.0)
                w.heard.append(sim.now)

        return inner

    for listening, factor in ((False, 1.0), (True, 0.5)):
        machines = cluster(4, latency="1ms", compute="10ms")
        sim = build(Flat(), Bare(rule(listening)), machines)
        sim.deadline = 0.03
        sim.run(Stop().watch(sim))
        assert sim.workers[0].state.heard == [pytest.approx(0.01 + factor * 6 * 0.001)]


def test_a_worker_lost_in_a_reduction_is_not_waited_for():
    """Worker 0 waits in it and is lost; worker 2 is lost before it comes; the others go on with what is there."""
    seen = []

    def rule(w):
        yield from once(w)
        mean = yield AllReduce(torch.tensor([float(w.rank)], dtype=torch.float64))
        seen.append((w.rank, mean.value.item(), mean.members))

    machines = cluster(4, compute=["10ms@0-1", "40ms@2", "50ms@3"], events=["lose 0 at 20ms", "lose 2 at 30ms"])
    sim = run_for(0.055, Flat(), Bare(rule), machines)
    assert seen == [(1, 2.0, (1, 3)), (3, 2.0, (1, 3))]
    lost = [r for r in sim.rows if r[9] == "lost"]
    assert [r[1] for r in lost] == [2], "worker 0's gradient had been announced"


def test_a_gradient_that_waits_in_a_reduction_is_in_the_books():
    machines = cluster(3, compute=["10ms@0-1", "40ms@2"], events=["lose 0 at 20ms"])
    sim = run_for(0.03, Flat(), AllReduceSGD(sgd(0.1)), machines)
    sim.finish()
    assert sorted((r[1], r[9]) for r in sim.rows) == [(0, "lost"), (1, "in flight"), (2, "in flight")]


def test_a_torn_read_has_the_version_at_which_it_began():
    """Two chunks: the first is read before the other thread's add, the second after it."""
    views = []

    class Watching(Hogwild):
        def _alone(self, effect):
            answer = yield effect
            if isinstance(effect, SharedRead):
                views.append((answer.version, answer.x.tolist()))
            return answer

    class Slope(Flat):
        def gradient(self, point, batch, key):
            g = super().gradient(point, batch, key)
            g.value = -torch.ones(2, dtype=torch.float64)
            return g

    # Thread 0 adds during 30..34 ms (first coordinate at 32, second at 34) and reads again from 34 to 38.
    # Thread 1 reads, computes 24.5 ms and adds during 28.5..32.5 ms, then reads from 32.5 (34.5, 36.5).
    machines = cluster(2, compute=["26ms@0", "24500us@1"], memory="4ms")
    run_for(0.0385, Slope(), Watching(sgd(1.0), chunks=2), machines)
    assert views[:2] == [(0, [0.0, 0.0])] * 2
    assert views[2] == (1, [2.0, 2.0]), "began after one add, and saw all of the second: torn, and no newer than 1"


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], [(0, 1), (1, 11), (2, 21), (3, 31)]),
        (["lose 0 at 5ms"], [(0, 1), (1, 5), (2, 15), (3, 25)]),  # its holder is lost
        (["lose 1 at 5ms"], [(0, 1), (2, 11), (3, 21)]),  # one in the queue
        (["lose 0 at 5ms", "lose 1 at 6ms"], [(0, 1), (1, 5), (2, 6), (3, 16)]),
        (["lose 0 at 5ms", "lose 1 at 5000001ns"], [(0, 1), (1, 5), (2, 5.000001), (3, 15.000001)]),
    ],
)
def test_the_lock_is_handed_on_in_the_order_of_asking(events, expected):
    """Everybody holds it for 10 ms; the workers come at 1, 2, 3 and 4 ms."""
    taken = []

    def rule(w):
        yield from once(w)
        yield Lock()
        taken.append((w.rank, round(1000 * sim.now, 6)))
        yield SharedRead(2)
        yield Unlock()

    machines = cluster(4, compute=["1ms@0", "2ms@1", "3ms@2", "4ms@3"], memory="10ms", events=events)
    sim = build(Flat(), Bare(rule), machines)
    sim.deadline = 0.2
    sim.run(Stop().watch(sim))
    assert taken[: len(expected)] == expected


def test_a_timing_only_run_can_be_saved():
    """Its vectors are nothing but a size, and a checkpoint holds them."""
    solver = Hogwild(sgd(0.1))
    sim = build(Idle(800), solver, cluster(3, memory="1ms"))
    sim.run(Stop(ticks=50).watch(sim))
    tree = sim.save(tensors := {})
    assert not tensors
    again = build(Idle(800), solver, cluster(3, memory="1ms"))
    again.restore(tree, tensors)
    for s in (sim, again):
        s.run(Stop(ticks=100).watch(s))
    assert (again.now, again.updates, again.bytes) == (sim.now, sim.updates, sim.bytes)
    assert again.point.x.nbytes == 800


def test_when_everybody_has_left_their_parameters_are_still_there():
    sim = build(Flat(), AllReduceSGD(sgd(0.1)), cluster(2), samples_per_worker=3)
    assert sim.run(Stop().watch(sim)) == "idle"
    assert sim.context.living == 0
    assert sim.point.x.tolist() == [0.0, 0.0]
