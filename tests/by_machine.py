"""Synchronous SGD step by step, with sums of which one knows the order: machine by machine, or worker by worker."""

from typing import Any

from offbeat.core.effects import AllReduce, Grad, Reduced
from offbeat.engines.running.gradients import compute
from offbeat.engines.running.rounds import BETWEEN, Rounds


def in_step(task: Any, rule: Any, feed: Any, world: Any, machines: list[str], *, steps: int, seed: int) -> Any:
    """The parameters after so many steps of an all-reduce rule. All replicas are equal: the first one's rule is run.

    Workers of one machine (`machines` has the name of each worker's) are summed first, if any share one at all.
    """
    start = task.init(seed)
    rounds = Rounds(rule, rule.init_worker(0, start.x, world), pauses=True)
    for _ in range(steps):
        effect = rounds.begin()
        while effect is not BETWEEN:
            answer = None
            if type(effect) is Grad:
                drawn = [feed.take(i) for i in range(len(machines))]
                found = [compute(task, feed, seed, effect.at, start.buffers, *batch) for batch in drawn]
                answer = found[0]
            elif type(effect) is AllReduce:
                sizes = [g.samples for g in found]
                assert len(set(sizes)) == 1
                mean = _sum([g.value for g in found], machines) / len(found)
                answer = Reduced(mean, sum(sizes), tuple(range(len(found))), 0)
            effect = rounds.answer(answer)
    return rounds.state.x


def _sum(vectors: list[Any], machines: list[str]) -> Any:
    if len(set(machines)) in (1, len(machines)):
        return _in_order(vectors)
    near: dict[str, list[Any]] = {}
    for vector, machine in zip(vectors, machines, strict=True):
        near.setdefault(machine, []).append(vector)
    return _in_order([_in_order(some) for some in near.values()])


def _in_order(vectors: list[Any]) -> Any:
    found = vectors[0]
    for vector in vectors[1:]:
        found = found + vector
    return found
