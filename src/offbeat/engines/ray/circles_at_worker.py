"""A worker's side of all-reduces by torch.distributed: its vector stays here, and its circles sum."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from offbeat.core.effects import AllReduce
from offbeat.core.reduction import divisor, terms
from offbeat.core.sparse import dense
from offbeat.engines.ray.circle import Circle
from offbeat.engines.ray.notes import Notes
from offbeat.engines.ray.sum_messages import Disband, SumEnded, SumUp, Tell, Told
from offbeat.engines.ray.vetting import is_finite
from offbeat.engines.real.messages import Reducing

_LOOK = 0.02  # seconds between two looks at what the server says while a sum is made,
_LOOK_BEFORE = 0.002  # and while a circle comes together, when others wait for our notes


class CirclesAtWorker:
    """Does what the server says: with whom to sum, and what to give up."""

    def __init__(
        self,
        rank: int,
        address: str,
        patience_seconds: float,
        say: Callable[[Any], None],
        listen: Callable[[], Any],
    ) -> None:
        """`say`: to the server; `listen`: hears one message of its, if there is one, which may come back to `hear`."""
        self._rank, self._address, self._patience = rank, address, patience_seconds
        self._say, self._listen = say, listen
        self._notes: dict[int, Notes] = {}
        self._circles: dict[int, Circle] = {}
        self._over: set[int] = set()
        self._given: tuple[Tensor | None, float] = None, 0.0
        self.asked = 0
        """How many sums it was asked for, in this life."""
        self.mean: Tensor | None = None
        """What the last all-reduce came to."""

    def give(self, effect: AllReduce) -> Reducing:
        """Says that there is a vector, and of what kind; it stays where it is."""
        self.mean, value = None, dense(effect.value) if effect.weight else None
        self._given = value, effect.weight
        size, kind = (0, None) if value is None else (len(value), (_name(value.dtype), is_finite(value)))
        return Reducing(effect.weight, effect.members, effect.group, size, kind)

    def sum(self, asked: SumUp) -> None:
        """Sums with the others, and says how it ended. What the server says meanwhile is heard."""
        self.asked += 1
        if asked.circle in self._over:
            self._say(SumEnded(asked.number, "it was given up"))
            return
        circle = self._circle(asked)
        job = circle.sum(self._own(asked), asked.givers)
        while not job.done.wait(_LOOK if circle.connected else _LOOK_BEFORE) and asked.circle not in self._over:
            while circle.notes.outgoing:
                self._say(Tell(asked.circle, *circle.notes.outgoing.popleft()))
            self._listen()
        if job.result is None:
            self._end(asked.circle)
            self._say(SumEnded(asked.number, job.why or "it was given up"))
            return
        self.mean = job.result / divisor(asked.weights)
        self._say(SumEnded(asked.number))

    def hear(self, message: Told | Disband) -> None:
        """At once, whatever we are doing."""
        if isinstance(message, Disband):
            self._end(message.circle)
        elif message.circle not in self._over:
            self._notes_of(message.circle).take(message.key, message.value)

    def close(self) -> None:
        for circle in list(self._circles):
            self._end(circle)

    def _own(self, asked: SumUp) -> Tensor:
        """What we add."""
        value, weight = self._given
        if value is None:
            return torch.zeros(asked.size, dtype=getattr(torch, asked.dtype))
        mine: Tensor = next(iter(terms([value], [weight], asked.weights)))
        return mine

    def _circle(self, asked: SumUp) -> Circle:
        found = self._circles.get(asked.circle)
        if found is None:
            notes = self._notes_of(asked.circle)
            found = Circle(self._rank, asked.teams, notes, self._address, self._patience)
            self._circles[asked.circle] = found
        return found

    def _notes_of(self, circle: int) -> Notes:
        """They may come before we have heard of the circle."""
        if circle not in self._notes:
            self._notes[circle] = Notes(self._patience)
        return self._notes[circle]

    def _end(self, circle: int) -> None:
        self._over.add(circle)
        self._notes.pop(circle, None)
        if (found := self._circles.pop(circle, None)) is not None:
            found.close()


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
