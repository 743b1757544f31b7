"""All-reduce on one machine: the vectors stay where they were written, and all is summed in worker order.

Each member sums its slice of a long vector; short ones everybody sums whole, which is cheaper than another message.
Then a slow one may still read when a fast one gives its next vector, which is why there are two places for them: the
fast one cannot come to the third before the slow one has come to the second, as everybody takes part.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from offbeat.core.effects import AllReduce
from offbeat.core.reduction import mean_of
from offbeat.core.sparse import RowSparse, dense
from offbeat.engines.local.arena import Arena
from offbeat.engines.local.channel import Channel
from offbeat.engines.local.local_messages import Mean, Summands, Summed, SumRows, SumSlice
from offbeat.engines.real.gathering import Meeting
from offbeat.engines.real.mail import Mail
from offbeat.engines.real.messages import Met, Reducing

Done = Callable[[Meeting, Any, int], None]


class Sum:
    """The server's side of one all-reduce: who sums which slice."""

    def __init__(self, meeting: Meeting, done: Done, short: int) -> None:
        self.meeting, self.done = meeting, done
        self.at = meeting.alive[0]  # in whose memory the mean comes to lie
        places = [(i, a.given["at"]) for i, a in meeting.given]
        self.summands = Summands(places, meeting.weights, meeting.group)
        self.rows = [a.given["rows"] for _, a in meeting.given if a.given["rows"] is not None]
        self.mean = Mean(self.at)
        self.nbytes = 0
        self.whole = meeting.everybody and not self.rows and meeting.size * len(places) <= short
        self.owner = {0: self.at} if self.rows else dict(enumerate(meeting.alive))  # slice -> who sums it


class ServerSums:
    """Shares sums out among the members. One that dies while it sums leaves its slice to another."""

    def __init__(self, arena: Arena, short: int, send: Callable[[int, Any], None]) -> None:
        self._arena, self._short, self._send = arena, short, send
        self._open: dict[int, Sum] = {}

    def begin(self, meeting: Meeting, done: Done) -> None:
        made = Sum(meeting, done, self._short)
        if meeting.given and not made.whole:
            self._open[made.at] = made
            for k, i in list(made.owner.items()):
                self._hand_out(made, k, i)
            return
        if made.whole and meeting.given:
            made.mean.summands = made.summands
        self._end(made)

    def _hand_out(self, made: Sum, k: int, i: int) -> None:
        made.owner[k] = i
        meeting = made.meeting
        if made.rows:
            given = [j for j, _ in meeting.given]
            self._send(i, SumRows(made.at, given, made.rows, meeting.weights, meeting.group))
        else:
            self._send(i, SumSlice(made.at, meeting.size, made.summands, k, len(meeting.alive)))

    def summed(self, told: Summed) -> None:
        made = self._open[told.at]
        if told.rows is not None:
            made.mean.rows, made.nbytes = told.rows, told.nbytes
        del made.owner[told.k]
        if not made.owner:
            del self._open[made.at]
            self._end(made)

    def _end(self, made: Sum) -> None:
        nbytes = made.nbytes if made.rows else made.meeting.size * self._arena.vectors.shared.element_size()
        made.done(made.meeting, made.mean, nbytes)

    def lost(self, i: int) -> None:
        for made in list(self._open.values()):
            others = [j for j in made.meeting.alive if self._arena.alive[j]]
            if not others:  # nobody is left who would want to know
                del self._open[made.at]
                self._end(made)
            for k in [k for k, owner in made.owner.items() if owner == i and others]:
                self._hand_out(made, k, others[0])


class WorkerSums:
    """A member's side."""

    def __init__(self, arena: Arena, mail: Mail, rank: int, channel: Channel) -> None:
        self._arena, self._mail, self._rank, self._channel = arena, mail, rank, channel

    def give(self, effect: AllReduce) -> Reducing:
        """Puts its vector where others read it."""
        arena, i = self._arena, self._rank
        at, rows, size = 2 if effect.members is not None else int(arena.sums[i]) % 2, None, 0
        if effect.weight and isinstance(effect.value, RowSparse):
            rows = self._mail.pack(effect.value, arena.push_slot(i), {})
        elif effect.weight:
            size = len(effect.value)
            arena.given(i, at, size).copy_(dense(effect.value))
            arena.sums[i] += at < 2
        return Reducing(effect.weight, effect.members, effect.group, size, {"at": at, "rows": rows})

    def mean(self, met: Met, where: Mean) -> Any:
        if where.rows is not None:
            return self._read_rows(where.rows, self._arena.own_slot(where.at))
        if where.summands is not None:
            return self._mean(slice(0, met.size), met.size, where.summands)
        return self._arena.own(where.at, met.size).clone() if met.size else None

    def sum_slice(self, asked: SumSlice) -> None:
        mine = slice(asked.k * asked.size // asked.n, (asked.k + 1) * asked.size // asked.n)
        self._arena.own(asked.at, asked.size)[mine] = self._mean(mine, asked.size, asked.summands)
        self._channel.send(Summed(asked.at, asked.k))

    def sum_rows(self, asked: SumRows) -> None:
        arena = self._arena
        values = [self._read_rows(r, arena.push_slot(j)) for j, r in zip(asked.given, asked.rows, strict=True)]
        mean = mean_of(values, asked.weights, asked.group)
        self._channel.send(Summed(asked.at, 0, self._mail.pack(mean, arena.own_slot(asked.at), {}), mean.nbytes))

    def _mean(self, part: slice, size: int, summands: Summands) -> Tensor:
        values = [self._arena.given(j, at, size)[part] for j, at in summands.places]
        if len(values) == 1:
            return values[0].clone()
        mean: Tensor = mean_of(values, summands.weights, summands.group)
        return mean

    def _read_rows(self, rows: Any, slot: int) -> Any:
        tree, parts = rows
        return self._mail.unpack(tree, parts, slot, {})
