"""The contract of every solver, as checks. Our own tests and `offbeat check` run the same ones.

A check returns None if it holds, a reason if it does not apply to this case, and raises `Broken` with what is wrong,
in words.
"""

import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torch

from offbeat.core.effects import Applied, Stepped
from offbeat.core.errors import ConfigError
from offbeat.core.seeds import key64
from offbeat.core.task import Point
from offbeat.core.trace import APPLIED, REFUSED, Row
from offbeat.engines.cluster import Cluster
from offbeat.engines.sim import Sim
from offbeat.lab.contract.case import Broken, Case
from offbeat.lab.contract.recorder import Bowl, Recorder
from offbeat.lab.contract.trial import SEED, account, advance, compare, feed_of, reincarnated, trial
from offbeat.optim.steppers import optimizer_factory
from offbeat.tasks.idle import Idle

UPDATES = 2
"""So many updates must be made in each half of a trial."""
ALONE_UPDATES = 30
"""So many by one worker alone."""
PATIENCE = 50
"""So many events are waited for each update: a rule that never announces `Stepped` must not be waited for for ever."""
_OUTCOME = Row._fields.index("outcome")


def inputs_are_left_alone(case: Case) -> None:
    """What a rule was given, keeps or has published is never mutated."""
    recorder = Recorder(case.make())
    sim = trial(case, solver=recorder)
    advance(sim, case.events)
    changed = recorder.changed()
    if changed:
        where = ", ".join(sorted(set(changed)))
        raise Broken(f"{len(changed)} values were changed after they were seen, in: {where}")
    again = trial(case)
    advance(again, case.events)
    compare(account(sim), account(again), "between two runs with the same seed")


def it_asks_for_what_it_declares(case: Case) -> None:
    """`asks` names every effect of a round, and a round holds at most one gradient."""
    recorder = Recorder(case.make())
    advance(trial(case, solver=recorder), case.events)
    undeclared = recorder.asked - recorder.asks - {Applied, Stepped}
    if undeclared:
        raise Broken(f"its rounds use {', '.join(sorted(e.__name__ for e in undeclared))}, which `asks` does not name")
    if recorder.most_gradients > 1:
        raise Broken(f"a round holds {recorder.most_gradients} gradients; a checkpoint needs at most one")


def an_engine_that_lacks_an_effect_refuses_it(case: Case) -> None:
    """Before anything starts, with the name of what is missing."""
    for effect in case.make().asks:
        poor = type("Poor", (Sim,), {"asks": Sim.asks - {effect}})
        try:
            poor(Bowl(), case.make(), Cluster.parse(workers=case.workers), feed_of(case.workers), seed=0)
        except ConfigError as e:
            if effect.__name__ not in str(e):
                raise Broken(f"the refusal {str(e)!r} does not name {effect.__name__}") from None
        else:
            raise Broken(f"an engine without {effect.__name__} started it all the same")


def versions_are_monotone(case: Case) -> str | None:
    """The version never goes back, counts the updates, and nothing is applied before it was read."""
    recorder = Recorder(case.make())
    sim = trial(case, solver=recorder)
    advance(sim, case.events)
    version = sim.solver.version(sim.server)
    if version is not None and any(a.version is None for a in recorder.announced_by_server):
        raise Broken("the server counts versions, and announces a gradient without saying at which it is used")
    announced = [*recorder.announced_by_server, *recorder.announced_by_workers]
    if not any(a.version is not None for a in announced):
        return "it has no versions"
    told = [Row(*r) for r in sim.rows if r[_OUTCOME] in (APPLIED, REFUSED)]
    rows = [r for r in told if r.version_applied is not None]
    if len(rows) < len(told) and all(a.version is not None for a in announced):
        raise Broken(f"{len(told) - len(rows)} of {len(told)} rows of the trace have lost their version")
    for a, b in pairwise(rows):
        if (b.version_applied or 0) < (a.version_applied or 0):
            raise Broken(f"the version goes back from {a.version_applied} to {b.version_applied}")
    late = [r for r in rows if r.staleness is not None and r.staleness < 0]
    if late:
        raise Broken(f"a gradient of version {late[0].version_read} was applied at version {late[0].version_applied}")
    if version is not None and version != sim.updates:
        raise Broken(f"the server is at version {version} after {sim.updates} announced updates")
    return None


def every_gradient_is_in_the_books(case: Case) -> None:
    """Each batch that was drawn has a row in the trace, whatever became of its gradient."""
    sim = trial(case)
    advance(sim, case.events)
    sim.finish()
    rows = [Row(*r) for r in sim.rows]
    seen = {(r.source, r.draw) for r in rows}
    drawn = {(i, k) for i, n in enumerate(sim.feed.draws) for k in range(n)}
    if drawn - seen:
        source, draw = min(drawn - seen)
        raise Broken(f"batch {draw} of worker {source} has no row: announce Applied or Refused, or list it in `held`")
    applied = sum(r.samples for r in rows if r.outcome == APPLIED)
    if applied != sim.samples_applied:
        raise Broken(f"{applied} samples in the trace, {sim.samples_applied} counted as applied")


def somebody_is_always_busy(case: Case) -> None:
    """It never comes to a standstill."""
    equal: dict[str, Any] = {"compute": "10ms", "latency": "0s", "service": "0s"}
    for times in ({}, equal):
        _keeps_going(trial(case, **times), case.events, "")


def the_loss_of_a_worker_stops_nobody(case: Case) -> str | None:
    """One worker is lost in the middle of a run, another joins."""
    if case.fixed or case.workers == 1:
        return "its workers are fixed"
    n = case.workers
    for lost, at in ((0, "31ms"), (n - 1, "47ms"), (n - 1, "1ms")):
        if not case.joins:
            sim = trial(case, events=[f"lose {lost} at {at}"])
            _keeps_going(sim, 2 * case.events, f" after worker {lost} was lost at {at}")
            continue
        sim = trial(case, workers=n + 1, events=[f"lose {lost} at {at}", f"join {n} at 63ms"])
        _keeps_going(sim, 2 * case.events, f" after worker {lost} was lost at {at} and worker {n} had joined at 63ms")
        sim.finish()
        mine = [r for r in sim.rows if r[1] == n]
        if not mine:
            raise Broken(f"worker {n} joined at 63ms and never computed a gradient")
    return None


def _keeps_going(sim: Sim, events: int, when: str) -> None:
    for half in (events // 2, events - events // 2):
        before = sim.updates
        if advance(sim, half) == "idle":
            raise Broken(f"everybody waits{when}: a standstill after {sim.updates} updates, at {sim.now:.4g} s")
        if sim.updates < before + UPDATES:
            asked = "" if sim.updates else ": no Stepped() was announced"
            raise Broken(f"only {sim.updates - before} updates in {half} events{when}{asked}")


def the_dtype_is_kept(case: Case) -> None:
    """float32 stays float32 and float64 stays float64, in all that is seen."""
    for dtype in (torch.float32, torch.float64):
        recorder = Recorder(case.make())
        sim = trial(case, Bowl(dtype), recorder)
        advance(sim, case.events)
        others = {t.dtype for t in [*recorder.tensors, sim.point.x] if t.is_floating_point()} - {dtype}
        if others:
            raise Broken(f"parameters are {dtype}, but {', '.join(sorted(map(str, others)))} was seen as well")


def a_restored_run_has_the_same_bits(case: Case) -> None:
    """Saved at random moments, through JSON and copies of the tensors, and continued in a new engine."""
    events: dict[str, Any] = {}
    if not case.fixed and case.workers > 1:
        events = {"events": ["lose 1 at 83ms"]}
        if case.joins:
            events = {"workers": case.workers + 1, "events": ["lose 1 at 83ms", f"join {case.workers} at 41ms"]}
    whole = trial(case, **events)
    advance(whole, case.events)
    expected = account(whole)
    rng = random.Random(str(case))
    for count in (1, 1, 2, 4):
        cuts = sorted(rng.sample(range(1, case.events), count))
        sim, at = trial(case, **events), 0
        for cut in cuts:
            advance(sim, cut - at)
            sim, at = reincarnated(sim, trial(case, **events)), cut
        advance(sim, case.events - at)
        compare(account(sim), expected, f"when a run is saved and restored after {cuts} events")


def the_pool_does_not_matter(case: Case) -> None:
    """No pool, two threads and three give the same bits."""
    runs = []
    for threads in (0, 2, 3):
        sim = trial(case, threads=threads)
        advance(sim, case.events)
        runs.append(account(sim))
    compare(runs[1], runs[0], "with a pool of two threads")
    compare(runs[2], runs[0], "with a pool of three threads")


def without_values_the_clock_is_the_same(case: Case) -> None:
    """A timing-only run goes through the same events as a run with gradients."""
    real, void = trial(case), trial(case, Idle(Bowl().nbytes))
    for sim in (real, void):
        advance(sim, case.events)
        sim.finish()
    timing = ("time", "worker", "source", "draw", "version_read", "version_applied", "staleness", "outcome", "samples")
    at = [Row._fields.index(n) for n in timing]
    for n, (a, b) in enumerate(zip(real.rows, void.rows, strict=False)):
        if [a[k] for k in at] != [b[k] for k in at]:
            got, expected = [b[k] for k in at], [a[k] for k in at]
            raise Broken(f"row {n} of a timing-only run is {got}, with gradients {expected}")
    if len(real.rows) != len(void.rows):
        raise Broken(f"a timing-only run has {len(void.rows)} rows, a run with gradients {len(real.rows)}")


def one_worker_is_the_optimizer_itself(case: Case) -> str | None:
    """With one worker it is a loop around the torch optimizer, bit for bit."""
    if case.alone is None:
        return "nothing is claimed for one worker"
    task = Bowl()
    sim = trial(Case(case.solver, case.options, 1, case.optimizer), task)
    advance(sim, PATIENCE * ALONE_UPDATES, ALONE_UPDATES)
    if sim.updates < ALONE_UPDATES:
        raise Broken(f"one worker alone makes {sim.updates} updates, and {ALONE_UPDATES} were waited for")
    params = [p.clone().requires_grad_(True) for p in task.layout.views(task.init(0).x)]
    loop = optimizer_factory(**case.alone)(params)
    for k in range(sim.updates):
        x = task.layout.flatten(p.detach() for p in params)
        g = task.gradient(Point(x), None, key64(SEED, "model", 0, k)).value
        for p, part in zip(params, task.layout.views(g), strict=True):
            p.grad = part
        loop.step()
    x = task.layout.flatten(p.detach() for p in params)
    if not torch.equal(sim.point.x, x):
        far = float((sim.point.x - x).abs().max())
        raise Broken(f"after {sim.updates} updates it is {far:.3g} away from a loop around {dict(case.alone)}")
    return None


CHECKS: Mapping[str, Callable[[Case], str | None]] = {
    check.__name__.replace("_", " "): check
    for check in (
        inputs_are_left_alone,
        it_asks_for_what_it_declares,
        an_engine_that_lacks_an_effect_refuses_it,
        versions_are_monotone,
        every_gradient_is_in_the_books,
        somebody_is_always_busy,
        the_loss_of_a_worker_stops_nobody,
        the_dtype_is_kept,
        a_restored_run_has_the_same_bits,
        the_pool_does_not_matter,
        without_values_the_clock_is_the_same,
        one_worker_is_the_optimizer_itself,
    )
}
