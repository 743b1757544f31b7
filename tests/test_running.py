"""What a rule's requests and announcements mean, wherever it runs."""

import pytest
import torch

from harness import cluster, dicts, simulate
from odd_rules import Picky, Twice
from offbeat.core.codec import Codec
from offbeat.core.effects import Applied, Gradient, Received, Refused, Reply, Stepped
from offbeat.core.errors import RuleError
from offbeat.engines.running.ledger import Ledger, distance
from offbeat.engines.running.rounds import Rounds
from offbeat.engines.running.serving import Serving
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.replica import Replica
from offbeat.tasks.quadratic import Quadratic
from peers import sgd


def gradient(samples=4, version=2, **values):
    return Gradient(torch.ones(2), 0.5, samples, version=version, source=1, draw=7, **values)


def test_a_rule_that_replies_twice_is_named():
    with pytest.raises(RuleError, match="Twice replied to worker 0, which waits for no answer"):
        simulate(Quadratic(2), Twice(sgd(0.1)), cluster(1), updates=3)


def test_a_worker_may_refuse_its_own_gradient():
    found = simulate(Quadratic(2), Picky(sgd(0.1)), cluster(1), updates=3)
    assert [(r["draw"], r["outcome"]) for r in found.rows[:5]] == [
        (0, "applied"),
        (1, "refused"),
        (2, "applied"),
        (3, "refused"),
        (4, "applied"),
    ]
    assert found.sim.samples == 5
    assert found.sim.samples_applied == 3


def test_who_is_gone_is_not_answered_and_that_is_no_mistake():
    class Late(ASGD):
        def on_lost(self, s, worker):
            yield Reply(worker, None)

    solver = Late(sgd(0.1))
    serving = Serving(solver, None, Ledger(), {0, 1})
    assert serving.lose(1, 0.0) == []


def test_only_what_was_applied_or_refused_counts_as_processed():
    ledger = Ledger()
    ledger.announce(Applied(0, gradient(4), 5), 1.0)
    ledger.announce(Refused(0, gradient(3), 5), 2.0)
    ledger.announce(Received(1, gradient(4), 9), 3.0)
    ledger.announce(Stepped(), 3.0)
    ledger.unfinished(4.0, 2, (2, 0), 3, 5, 3.5, "lost")
    ledger.snapshot(4.0, 3, 4, 5, "in flight")
    assert (ledger.samples, ledger.samples_applied, ledger.updates) == (7, 4, 1)
    rows = dicts(ledger.rows)
    assert [r["staleness"] for r in rows] == [3, 3, 9, 2, 1]
    assert [r["outcome"] for r in rows] == ["applied", "refused", "received", "lost", "in flight"]
    assert [r["samples"] for r in rows] == [4, 3, 0, 0, 0]


def test_rows_of_another_ledger_count_as_if_they_had_been_announced_here():
    one, other = Ledger(), Ledger()
    for effect in (Applied(0, gradient(4), 5), Refused(0, gradient(3), 5), Received(1, gradient(4), 9)):
        one.announce(effect, 1.0)
    for row in one.rows:
        other.take(row)
    assert other.rows == one.rows
    assert other.counters() == one.counters()


def test_a_staleness_that_the_rule_knows_is_not_computed_from_versions():
    ledger = Ledger()
    ledger.announce(Applied(0, gradient(), 5, staleness=11), 0.0)
    assert dicts(ledger.rows)[0]["staleness"] == 11


def test_a_push_of_several_gradients_has_a_row_for_each():
    ledger = Ledger()
    parts = (gradient(1), gradient(2))
    ledger.announce(Applied(0, gradient(3, parts=parts), 4), 0.0)
    assert [r["samples"] for r in dicts(ledger.rows)] == [1, 2]
    assert ledger.samples == ledger.samples_applied == 3


def test_the_gap_is_a_norm():
    assert distance(torch.tensor([3.0, 4.0]), torch.zeros(2)) == 5.0
    ledger = Ledger(gap=True)
    g = gradient(at=torch.zeros(2))
    ledger.announce(Applied(0, g, 5, torch.tensor([3.0, 4.0])), 0.0)
    assert dicts(ledger.rows)[0]["gap"] == 5.0


def test_what_is_no_effect_is_refused_by_name():
    with pytest.raises(RuleError, match="'hello'"):
        Ledger().announce("hello", 0.0)


class Counting:
    """Asks for two numbers a round and keeps their sum; hears messages."""

    def round(self, w):
        first = yield "first"
        second = yield "second"
        w.x = w.x + first + second

    def on_message(self, w, sender, message):
        w.x = w.x + message
        yield Received(w.rank, gradient(), 0)


def test_a_round_that_is_run_again_against_what_it_was_told_stands_where_it_stood():
    codec = Codec((Replica,))
    rounds = Rounds(Counting(), Replica(0, 0.0, None), codec)
    assert rounds.begin() == "first"
    assert rounds.answer(1.0) == "second"
    assert rounds.answer(2.0) == "first"
    assert rounds.answer(10.0) == "second"
    list(rounds.hear(3, 100.0))
    rounds.mixed(500.0)
    start, told = codec.snapshot(rounds.start), list(rounds.told)
    assert start.x == 3.0
    again = Rounds(Counting(), Replica(0, -1.0, None), codec)
    assert again.rerun(start, told) == rounds.pending == "second"
    assert again.state.x == rounds.state.x == 500.0
    for one in (rounds, again):
        one.answer(20.0)
        assert one.state.x == 530.0
