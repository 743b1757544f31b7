"""All-reduce, as the server sees it: who has come, who sums which slice, who may go on."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offbeat.engines.local.server import Server


class Asked:
    """A worker's part in an all-reduce."""

    def __init__(
        self, weight: float, members: tuple[int, ...] | None, group: int | None, size: int, at: int, rows: Any
    ) -> None:
        self.weight, self.members, self.group, self.size = weight, members, group, size
        self.at = at  # where its vector lies
        self.rows = rows  # where those of a row-sparse value lie


class Round:
    """An all-reduce whose members have all come: each sums its slice, or the whole where that is short."""

    def __init__(self, at: int, alive: list[int], asked: list[Asked], short: int) -> None:
        self.at, self.alive = at, alive
        self.given = [i for i, a in zip(alive, asked, strict=True) if a.weight]
        self.weights = [a.weight for a in asked if a.weight]
        self.group = asked[0].group
        self.places = [(i, a.at) for i, a in zip(alive, asked, strict=True) if a.weight]
        self.size = max(a.size for a in asked)
        self.rows = [a.rows for a in asked if a.weight and a.rows is not None]
        self.sum: Any = None  # where the sum of row-sparse values lies,
        self.nbytes = 0  # and what it takes
        self.whole = asked[0].members is None and not self.rows and self.size * len(self.given) <= short
        self.owner = {0: alive[0]} if self.rows else dict(enumerate(alive))  # slice -> who sums it

    @property
    def summands(self) -> tuple[Any, ...]:
        return self.places, self.weights, self.group


class Gathering:
    """The vectors stay where they were written; a member that dies while it sums leaves its slice to another."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._waiting: dict[int, Asked] = {}
        self._rounds: dict[int, Round] = {}  # by the worker in whose memory the result comes to lie

    def begin(self, i: int, weight: float, members: Any, group: int | None, size: int, at: int, rows: Any) -> None:
        asked = Asked(weight, None if members is None else tuple(members), group, size, at, rows)
        self._waiting[i] = asked
        self._complete(asked.members)

    def _complete(self, members: tuple[int, ...] | None) -> None:
        server = self._server
        everybody = range(server.site.cluster.workers) if members is None else members
        alive = [i for i in everybody if server.arena.alive[i]]
        if not alive or any(i not in self._waiting or self._waiting[i].members != members for i in alive):
            return
        made = Round(alive[0], alive, [self._waiting.pop(i) for i in alive], server.site.options.short)
        self._rounds[made.at] = made
        if made.given and not made.whole:
            for k, i in list(made.owner.items()):
                self._hand_out(made, k, i)
        else:
            self._end(made)

    def _hand_out(self, made: Round, k: int, i: int) -> None:
        made.owner[k] = i
        if made.rows:
            self._server.tell(i, ("sum rows", made.at, made.given, made.weights, made.group, made.rows))
            return
        self._server.tell(i, ("sum", made.at, made.size, made.summands, k, len(made.alive)))

    def summed(self, at: int, k: int, rows: Any = None, nbytes: int = 0) -> None:
        made = self._rounds[at]
        if rows is not None:
            made.sum, made.nbytes = rows, nbytes
        del made.owner[k]
        if not made.owner:
            self._end(made)

    def _end(self, made: Round) -> None:
        server = self._server
        del self._rounds[made.at]
        server.books.listen()
        nbytes = made.nbytes if made.rows else made.size * server.arena.shared.element_size()
        server.books.bytes += min(len(made.given), 2) * nbytes * (len(made.alive) - 1)
        work, summands = server.books.samples, made.summands if made.whole and made.given else None
        for i in made.alive:
            server.tell(i, ("reduced", made.at, made.size, sum(made.weights), made.alive, work, made.sum, summands))

    def lost(self, i: int) -> None:
        """The rest of a group must not wait for the dead."""
        for made in list(self._rounds.values()):
            others = [j for j in made.alive if self._server.arena.alive[j]]
            for k in [k for k, owner in made.owner.items() if owner == i and others]:
                self._hand_out(made, k, others[0])
        gone = self._waiting.pop(i, None)
        groups = {a.members for a in self._waiting.values()} | ({gone.members} if gone else set())
        for members in sorted(groups, key=str):
            self._complete(members)
