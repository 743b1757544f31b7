"""The server's side of all-reduces by torch.distributed: who sums with whom, and what happens when one does not.

A connection that breaks takes its whole circle with it. So nobody goes on with a sum before everybody has said that it
is made; until then each member keeps its vector. If one is lost or fails, the circle is disbanded, and those who remain
sum again in another one, under another number.
"""

import time
from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import Any

import torch

from offbeat.engines.ray.frames import DTYPES, WrongMessageError
from offbeat.engines.ray.sum_messages import Disband, SumEnded, SumUp, Tell, Told
from offbeat.engines.real.gathering import Meeting
from offbeat.engines.real.transport import RunError

Done = Callable[[Meeting, Any, int], None]
Teams = list[list[int]]
_TRIES = 3  # of a sum that fails though nobody is lost


class SumUnderWay:
    """One all-reduce on its way."""

    def __init__(self, meeting: Meeting, done: Done) -> None:
        self.meeting, self.done = meeting, done
        self.number = self.circle = 0
        self.missing: set[int] = set()  # who has not said how it ended
        self.why = ""  # it failed
        self.tries = 0
        self.deadline = inf


class CirclesAtServer:
    """All sums on their way, and the circles that make them."""

    def __init__(
        self,
        place: Callable[[int], tuple[int, str] | None],
        send: Callable[[int, Any], None],
        give_up: Callable[[int, float], None],
        grace_seconds: float,
    ) -> None:
        """`place`: the life and the machine of a worker, None if it is not there; `give_up`: a worker that does not say
        within `grace_seconds` that it has given up a sum."""
        self._place, self._send, self._give_up, self._grace = place, send, give_up, grace_seconds
        self._sums: dict[int, SumUnderWay] = {}
        self._circles: dict[tuple[Any, ...], int] = {}
        self._members: dict[int, list[int]] = {}
        self._numbers = count(1)

    def vet(self, given: Any, *, finite: bool) -> None:
        """What a worker says of its vector; of a listener, nothing."""
        if given is None:
            return
        dtype, is_finite = given
        if dtype not in DTYPES:
            raise WrongMessageError(f"a vector of {dtype}")
        if finite and not is_finite:
            raise WrongMessageError("it holds numbers that are not finite")

    def begin(self, meeting: Meeting, done: Done) -> None:
        if len({(a.size, a.given[0]) for _, a in meeting.given}) > 1:
            sizes = ", ".join(f"{a.size} of {a.given[0]}" for _, a in meeting.given)
            raise RunError(f"an all-reduce of vectors of different lengths or types: {sizes}")
        self._try(SumUnderWay(meeting, done))

    def _try(self, made: SumUnderWay) -> None:
        meeting = made.meeting
        if not meeting.given:
            made.done(meeting, None, 0)
            return
        givers = [i for i, _ in meeting.given]
        dtype = meeting.given[0][1].given[0]
        teams = teams_of(meeting, {i: place[1] for i in meeting.alive if (place := self._place(i)) is not None})
        made.number, made.circle = next(self._numbers), self._circle(teams)
        made.missing, made.why, made.deadline = set(meeting.alive), "", inf
        self._sums[made.number] = made
        asked = SumUp(made.number, made.circle, teams, givers, meeting.weights, meeting.size, dtype)
        for i in meeting.alive:
            self._send(i, asked)

    def _circle(self, teams: Teams) -> int:
        """That of these lives of these workers: one that there is already, or a new one."""
        key = tuple(tuple((i, self._place(i)) for i in team) for team in teams)
        if key not in self._circles:
            self._circles[key] = made = next(self._numbers)
            self._members[made] = [i for team in teams for i in team]
        return self._circles[key]

    # -- what workers say -----------------------------------------------------------------------------------------

    def tell(self, worker: int, note: Tell) -> None:
        members = self._members.get(note.circle, [])
        if members and worker not in members:
            raise WrongMessageError("a note for a circle that it is not in")
        for i in members:  # none, if it was disbanded meanwhile
            if i != worker:
                self._send(i, Told(note.circle, note.key, note.value))

    def summed(self, worker: int, told: SumEnded) -> None:
        made = self._sums.get(told.number)
        if made is None or worker not in made.missing:
            return
        made.missing.discard(worker)
        if told.why is not None:
            self._fail(made, f"worker {worker}: {told.why}")
        elif not made.missing and not made.why:
            del self._sums[told.number]
            meeting = made.meeting
            made.done(meeting, None, meeting.size * getattr(torch, meeting.given[0][1].given[0]).itemsize)

    def lost(self, worker: int) -> None:
        """What it had part in is made again without it, at the next look."""
        for made in self._sums.values():
            if worker in made.meeting.alive:
                made.missing.discard(worker)
                self._fail(made, f"worker {worker} was lost")
                made.tries = 0
        for circle in [c for c, members in self._members.items() if worker in members]:
            self._disband(circle)

    def _fail(self, made: SumUnderWay, why: str) -> None:
        if not made.why:
            made.why, made.tries, made.deadline = why, made.tries + 1, time.monotonic() + self._grace
            self._disband(made.circle)

    def _disband(self, circle: int) -> None:
        """Everybody is told, or they would find out one by one, when their patience is over."""
        self._circles = {key: c for key, c in self._circles.items() if c != circle}
        for i in self._members.pop(circle, []):
            self._send(i, Disband(circle))

    # -- now and then ---------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Makes failed sums again, once everybody has given them up."""
        for made in list(self._sums.values()):
            if made.why and not made.missing:
                del self._sums[made.number]
                self._again(made)
            elif time.monotonic() > made.deadline:
                made.deadline = inf
                for i in sorted(made.missing):
                    self._give_up(i, self._grace)

    def _again(self, made: SumUnderWay) -> None:
        if made.tries >= _TRIES:
            raise RunError(f"torch.distributed did not make a sum, {_TRIES} times: {made.why}")
        asked = dict(zip(made.meeting.alive, made.meeting.asked, strict=True))
        alive = [i for i in made.meeting.alive if self._place(i) is not None]
        if alive:
            made.meeting = Meeting(alive, [asked[i] for i in alive])
            self._try(made)
        else:  # nobody is left who would want to know
            made.done(made.meeting, None, 0)


def teams_of(meeting: Meeting, machines: dict[int, str]) -> Teams:
    """Who sums first among themselves, in worker order: the groups that the rule asks for, or those on one machine.

    One team, if each is on a machine of its own: then nothing is near.
    """
    if meeting.group is not None:
        givers = [i for i, _ in meeting.given]
        teams = [givers[k : k + meeting.group] for k in range(0, len(givers), meeting.group)]
        teams[-1] += [i for i in meeting.alive if i not in givers]
        return _flat(teams)
    near: dict[str, list[int]] = {}
    for i in meeting.alive:
        near.setdefault(machines[i], []).append(i)
    return _flat(list(near.values()))


def _flat(teams: Sequence[list[int]]) -> Teams:
    if all(len(team) == 1 for team in teams):
        return [[i for team in teams for i in team]]
    return list(teams)
