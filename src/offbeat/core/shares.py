"""Who deals with whose share of the data: at first everybody with its own, later also with those of the absent.

A share is worker j's endless sequence of mini-batches. Whoever holds several takes turns with them. Shares change hands
only while everybody rests, at positions that are written down: so no batch is left out, and none comes twice.
"""

from collections.abc import Iterable, Sequence
from typing import Any

Piece = tuple[int, tuple[tuple[int, int], ...]]
"""From this batch of the holder on: (share, position in it from which it goes on), in turn."""
NOBODY = -1
"""The share of a batch that nobody takes, because its worker holds nothing any more."""
ENTRIES = ("holds", "share", "from")
"""How the journal says it: holder and batch; then, for each share, the share and the position."""


class Shares:
    """What each worker has held, and from which of its batches on. Whoever is not listed holds its own."""

    def __init__(self, held: Iterable[tuple[int, Sequence[Any]]] = ()) -> None:
        self.held: dict[int, list[Piece]] = {}
        """By worker; those who hold nothing but their own are not in it."""
        for worker, pieces in held:
            for first, shares in pieces:
                self.hold(worker, first, shares)

    def hold(self, worker: int, first: int, shares: Iterable[Sequence[int]]) -> None:
        """From its `first`-th batch on, the worker takes turns with these shares. Said twice, it is the same."""
        pieces = self.held.setdefault(worker, [])
        if pieces and pieces[-1][0] == first:
            pieces.pop()
        pieces.append((first, tuple((int(share), int(position)) for share, position in shares)))

    def nth(self, worker: int, k: int) -> tuple[int, int]:
        """The worker's k-th batch: (share, position)."""
        for first, shares in reversed(self.held.get(worker, ())):
            if k >= first and not shares:
                return NOBODY, k
            if k >= first:
                turn, which = divmod(k - first, len(shares))
                share, position = shares[which]
                return share, position + turn
        return worker, k

    def positions(self, worker: int, k: int) -> dict[int, int]:
        """Where each share stands that the worker holds, when it has taken k batches."""
        pieces = self.held.get(worker)
        if not pieces:
            return {worker: k}
        first, shares = pieces[-1]
        turn, which = divmod(k - first, max(1, len(shares)))
        return {share: position + turn + (n < which) for n, (share, position) in enumerate(shares)}

    def pieces(self, worker: int) -> list[Piece]:
        return list(self.held.get(worker, ()))

    def plain(self) -> list[tuple[int, list[Piece]]]:
        """As a checkpoint has it."""
        return [(worker, list(pieces)) for worker, pieces in sorted(self.held.items())]

    def deal(self, there: Iterable[int], draws: Sequence[int], idle: Iterable[int] = ()) -> dict[int, Piece]:
        """Deals all shares to those who are there: to each its own, the others in turn. Who has to be told what.

        `draws` are the batches that each worker has taken. The `idle` shares are nobody's, but for their own worker.
        """
        present, unwanted = sorted(there), set(idle)
        stands: dict[int, int] = {}
        for worker in range(len(draws)):
            stands |= self.positions(worker, int(draws[worker]))
        mine: dict[int, list[int]] = {i: [i] for i in present}
        for n, share in enumerate(s for s in sorted(stands) if s not in mine and s not in unwanted):
            mine[present[n % len(present)]].append(share)
        changed: dict[int, Piece] = {}
        for worker in range(len(draws)):
            shares = mine.get(worker, [worker] if worker in unwanted else [])
            if set(shares) != set(self.positions(worker, int(draws[worker]))):
                changed[worker] = int(draws[worker]), tuple((share, stands[share]) for share in shares)
        for worker, (first, shares_from) in changed.items():
            self.hold(worker, first, shares_from)
        return changed

    def follow(self, what: str, worker: int, number: int) -> None:
        """One line of the journal."""
        if what == "holds":
            self.hold(worker, number, ())
            return
        first, shares = self.held[worker].pop()
        shares = (*shares, (number, 0)) if what == "share" else (*shares[:-1], (shares[-1][0], number))
        self.held[worker].append((first, shares))


def entries(worker: int, held: Piece) -> list[tuple[str, int, int]]:
    """The lines of the journal that say so: (what, worker, number)."""
    first, shares = held
    found = [("holds", worker, first)]
    for share, position in shares:
        found += [("share", worker, share), ("from", worker, position)]
    return found
