"""What a solver declares of itself is what it is seen to do."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import offbeat
from cases import CASES
from harness import cluster
from offbeat.core.effects import Applied, Call, Grad, Gradient, Reply, SharedAdd, Stepped
from offbeat.core.errors import ConfigError
from offbeat.core.layout import Layout
from offbeat.core.seeds import key64
from offbeat.core.solver import World
from offbeat.core.task import Point
from offbeat.core.trace import APPLIED, Row
from offbeat.engines.clock import columns
from offbeat.lab.contract import advance, trial
from offbeat.solvers import SOLVERS, build, hyper_parameters, solver_class

SEVERAL = [c for c in CASES if c.workers > 1]
LAYOUT = Layout.of([("x", (2,))])


def world(workers, joining=()):
    return World(workers, LAYOUT, tuple(i for i in range(workers) if i not in joining), joining=joining)


class Observed:
    """A solver that is looked at: what its rounds ask for, and what the server says to each message."""

    def __init__(self, solver):
        self.solver, self.rounds, self.calls = solver, [], []

    def __getattr__(self, name):
        return getattr(self.solver, name)

    def round(self, w):
        asked, rule, answer = [], self.solver.round(w), None
        self.rounds.append(asked)
        while True:
            try:
                effect = rule.send(answer)
            except StopIteration:
                return
            asked.append(type(effect))
            answer = yield effect

    def on_call(self, s, worker, payload):
        said = list(self.solver.on_call(s, worker, payload))
        self.calls.append((worker, payload, said))
        return said


def observed(case, **options):
    seen = Observed(case.make())
    sim = trial(case, solver=seen, **options)
    advance(sim, 2 * case.events)
    return seen, sim


# -- who may come, and how many there are -----------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_takes_in_workers_exactly_where_the_contract_lets_them_join(case):
    solver = case.make()
    assert solver.takes_in == case.joins
    if case.workers == 1:
        return
    reason = solver.why_not(world(case.workers, joining=(1,)))
    assert (reason is None) == solver.takes_in
    assert solver.takes_in or "cannot take in workers that join later (1)" in reason


@pytest.mark.parametrize("case", [c for c in SEVERAL if c.make().takes_in], ids=str)
def test_whom_it_takes_in_computes(case):
    """The last of its workers comes late, and its gradients are used: also where each worker has options of its own."""
    late = case.workers - 1
    sim = trial(case, events=[f"join {late} at 40ms"])
    advance(sim, 4 * case.events)
    names = Row._fields.index
    assert any(r[names("worker")] == late and r[names("outcome")] == APPLIED for r in sim.rows)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_for_one_worker_exactly_if_it_refuses_two(case):
    solver, options = case.make(), dict(case.options)
    assert solver.why_not(world(case.workers)) is None
    if "speeds" in options:  # one for each worker
        return
    assert (solver.why_not(world(5)) is not None) == solver.alone


# -- barriers and answers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SEVERAL, ids=str)
def test_there_is_a_barrier_exactly_if_each_update_takes_one_gradient_of_every_worker(case):
    sim = trial(case)
    advance(sim, 3 * case.events)
    updates = {}
    for row in (Row(*r) for r in sim.rows):
        if row.outcome == APPLIED and row.version_applied is not None:
            updates.setdefault(row.version_applied, []).append(row.worker)
    whole = [sorted(workers) for version, workers in updates.items() if version != max(updates)]
    everybody = list(range(case.workers))
    assert case.make().barrier == (len(whole) > 2 and all(workers == everybody for workers in whole))


LIKE_ASGD = {
    "constant-delay delay=0": "a queue of length 0",
    "downpour name=adagrad lr=0.05": "n_push = n_fetch = 1",
}
"""Cases that are seen to answer at once and do not say so, because other options of theirs do not."""


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_answers_at_once_exactly_if_each_gradient_is_a_step_and_its_sender_is_answered(case):
    seen, _ = observed(case)
    at_once = bool(seen.calls) and all(asked in ([Grad, Call], [Grad], []) for asked in seen.rounds)
    for worker, payload, said in seen.calls:
        at_once &= isinstance(payload, Gradient) and [type(e) for e in said] == [Applied, Stepped, Reply]
        at_once = at_once and said[0].gradient is payload and said[-1].worker == worker
    assert at_once == (case.make().answers_at_once or str(case) in LIKE_ASGD)


@pytest.mark.parametrize("case", [c for c in SEVERAL if c.make().answers_at_once], ids=str)
def test_what_answers_at_once_is_timed_by_the_fast_loop_event_for_event(case):
    machines = cluster(case.workers, compute="lognormal(1s,2s)", latency="0.1s", service="exponential(0.2s)")
    assert columns.why_not(case.make(), machines) is None
    fast, slow = (offbeat.simulate(machines, case.make(), updates=200, nbytes=9, loop=x) for x in ("auto", "general"))
    assert (fast.summary["loop"], slow.summary["loop"]) == ("slotted", "general")
    assert fast.trace.equals(slow.trace)


def test_whoever_brings_workers_in_one_after_another_does_not_answer_all_of_them_at_once():
    opt = torch.optim.SGD
    assert build("asgd", opt, {}).answers_at_once
    assert not build("asgd", opt, {"introduce": 1.0}).answers_at_once


# -- what is shown ----------------------------------------------------------------------------------------------------


class Looked(Mapping):
    """What the workers show, and whether anybody has looked."""

    def __init__(self, shown):
        self._shown, self.times = shown, 0

    def __getitem__(self, worker):
        self.times += 1
        return self._shown[worker]

    def __iter__(self):
        self.times += 1
        return iter(self._shown)

    def __len__(self):
        self.times += 1
        return len(self._shown)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_shows_its_workers_exactly_if_they_are_looked_at_to_evaluate(case):
    solver = case.make()
    sim = trial(case, solver=solver)
    advance(sim, case.events)
    states = {i: w.state for i, w in enumerate(sim.workers) if w.state is not None}
    shown = {i: solver.shown(state) for i, state in states.items()} if solver.shows_workers else {}
    assert all(s is not None and s.weight > 0 for s in shown.values())
    looked = Looked(shown)
    x = solver.parameters(sim.server, looked)
    assert (looked.times > 0) == solver.shows_workers
    assert torch.equal(x, sim.point.x)
    if solver.shows_workers:  # ... and what is evaluated is made of nothing else
        twice = {i: replace(s, x=2 * s.x) for i, s in shown.items()}
        torch.testing.assert_close(solver.parameters(sim.server, twice), 2 * x, rtol=1e-12, atol=0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_version_moves_with_the_servers_parameters_and_without_a_version_they_never_move(case):
    solver = case.make()
    sim = trial(case, solver=solver)
    seen = [(solver.version(sim.server), sim.server.x)]
    for _ in range(case.events):
        advance(sim, 1)
        seen.append((solver.version(sim.server), sim.server.x))
    if seen[0][0] is None:
        assert all(version is None and x is seen[0][1] for version, x in seen)
        return
    assert seen[0][0] == 0
    assert seen[-1][0] > 1
    for (before, x), (after, y) in pairwise(seen):
        assert after >= before
        if SharedAdd not in solver.asks:  # which moves a part at a time, and counts when the last one has moved
            assert (after > before) == (y is not x)


# -- in place ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_in_place_subtracts_its_learning_rate_times_the_gradient(case):
    solver = case.make()
    solver.schedule = lambda work: 1 / (1 + work)
    if case.solver == "plain" and case.optimizer["name"] != "sgd":
        with pytest.raises(ConfigError, match="takes plain SGD as its optimizer, got Adam: the kernel trains in place"):
            solver.rate_in_place()
        return
    rate = solver.rate_in_place()
    in_place = case.solver == "plain" or (case.solver == "hogwild" and not case.options.get("locked"))
    assert (rate is not None) == in_place
    if rate is None:
        return
    sim = trial(replace(case, workers=1), solver=solver, memory="0s")
    for _ in range(20):
        x, updates = sim.server.x, sim.updates
        advance(sim, 1)
        if sim.updates > updates:
            g = sim.task.gradient(Point(x), None, key64(7, "model", 0, updates)).value
            torch.testing.assert_close(sim.server.x, x - rate(sim.updates) * g, rtol=1e-12, atol=1e-14)
    assert sim.updates > 2


# -- documented -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SOLVERS)
def test_every_hyper_parameter_has_its_line_in_the_docstring_with_its_default(name):
    kind = solver_class(name)
    entries = inspect.cleandoc(kind.__doc__).split("Args:\n", 1)[1].split("\n\n")[0]
    assert re.findall(r"^    (\w+): ", entries, re.M) == ["opt", *hyper_parameters(kind)]
    assert entries.count("Default: ") == len(hyper_parameters(kind))
