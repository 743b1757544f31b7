"""The fixed set of real configurations that a validation runs, in two halves: to fit to, and to predict."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from offbeat.core.errors import unknown

TARGET = "accuracy=0.9"
LENET, MLP = "lenet5", "mlp"
Half = Literal["fit", "predict"]
"""What a case is for."""


class Crowd(NamedTuple):
    """How many workers: so many times the cores, and some more."""

    times: int
    more: int


@dataclass(frozen=True)
class RealCase:
    """One configuration."""

    name: str
    solver: str
    half: Half
    crowd: Crowd
    batch: int = 64
    model: str = LENET
    delay: tuple[str, ...] = field(default=())

    def workers(self, cores: int) -> int:
        return self.crowd.times * cores + self.crowd.more

    @property
    def place(self) -> object:
        """Where it runs: what was fitted elsewhere says nothing about it. One place for all on this machine."""
        return None

    @property
    def trained(self) -> object:
        """What is trained: compute times of anything else say nothing about it."""
        return self.model

    def values(self, cores: int, seconds: float, seed: int, engine: str) -> dict[str, Any]:
        """Its configuration, for so many seconds of computing."""
        return {
            "task": {"name": "digits", "model": self.model},
            "solver": {"name": self.solver},
            "cluster": {"workers": self.workers(cores), "delay": list(self.delay)},
            "data": {"batch": self.batch},
            "budget": {"seconds": seconds},
            "evaluate": {"every": "1epochs"},
            "engine": engine,
            "seed": seed,
        }


# Worker counts below, at and above the cores: 1, c, c + 1, 2 c.
_ONE, _AT, _ABOVE, _TWICE = Crowd(0, 1), Crowd(1, 0), Crowd(1, 1), Crowd(2, 0)
_SLOW = ("20ms@0",)

CASES = (
    RealCase("asgd, 1 worker", "asgd", "fit", _ONE),
    RealCase("asgd, as many as cores", "asgd", "fit", _AT),
    RealCase("asgd, twice as many", "asgd", "fit", _TWICE),
    RealCase("asgd, 1 worker, batch 16", "asgd", "fit", _ONE, batch=16),
    RealCase("asgd, as many as cores, batch 16", "asgd", "fit", _AT, batch=16),
    RealCase("all-reduce, as many as cores", "allreduce", "fit", _AT),
    RealCase("hogwild, as many as cores", "hogwild", "fit", _AT),
    RealCase("easgd, 1 worker", "easgd", "fit", _ONE),
    RealCase("asgd, 1 worker, MLP", "asgd", "fit", _ONE, model=MLP),
    RealCase("asgd, as many as cores, MLP", "asgd", "fit", _AT, model=MLP),
    RealCase("asgd, one more than cores", "asgd", "predict", _ABOVE),
    RealCase("asgd, twice as many, batch 16", "asgd", "predict", _TWICE, batch=16),
    RealCase("sync, as many as cores", "sync", "predict", _AT),
    RealCase("sync, twice as many", "sync", "predict", _TWICE),
    RealCase("all-reduce, twice as many", "allreduce", "predict", _TWICE),
    RealCase("easgd, as many as cores", "easgd", "predict", _AT),
    RealCase("hogwild, twice as many", "hogwild", "predict", _TWICE),
    RealCase("asgd, worker 0 delayed by 20 ms", "asgd", "predict", _AT, delay=_SLOW),
    RealCase("sync, worker 0 delayed by 20 ms", "sync", "predict", _AT, delay=_SLOW),
    RealCase("asgd, twice as many, MLP", "asgd", "predict", _TWICE, model=MLP),
)


def chosen(only: str | None, cases: Sequence[RealCase] = CASES) -> tuple[RealCase, ...]:
    """Those of these names, or with these words in their names, separated by semicolons; all unless given."""
    if only is None:
        return tuple(cases)
    names = [case.name for case in cases]
    wanted: set[str] = set()
    for word in filter(None, map(str.strip, only.split(";"))):
        found = {word} if word in names else {name for name in names if word in name}
        if not found:
            raise unknown("case", word, names)
        wanted |= found
    return tuple(case for case in cases if case.name in wanted)
