"""All-reduce, as the server sees it: who has come, who is missing, who may go on."""

from collections.abc import Callable

from offbeat.engines.real.board import Board
from offbeat.engines.real.messages import Reducing


class Meeting:
    """An all-reduce whose members have all come, in worker order."""

    def __init__(self, alive: list[int], asked: list[Reducing]) -> None:
        self.alive, self.asked = alive, asked
        self.group = asked[0].group
        self.everybody = asked[0].members is None
        self.given = [(i, a) for i, a in zip(alive, asked, strict=True) if a.weight]
        """Who has brought a vector: a member of weight 0 only listens."""
        self.weights = [a.weight for _, a in self.given]
        self.size = max(a.size for a in asked)


class Gathering:
    """Who waits in which all-reduce. The rest of a group does not wait for the dead."""

    def __init__(self, board: Board, workers: int, meet: Callable[[Meeting], None]) -> None:
        self._board, self._workers, self._meet = board, workers, meet
        self.waiting: dict[int, Reducing] = {}

    def come(self, i: int, asked: Reducing) -> None:
        self.waiting[i] = asked
        self._complete(asked.members)

    def lost(self, i: int) -> None:
        gone = self.waiting.pop(i, None)
        groups = {a.members for a in self.waiting.values()} | ({gone.members} if gone else set())
        for members in sorted(groups, key=str):
            self._complete(members)

    def _complete(self, members: tuple[int, ...] | None) -> None:
        everybody = range(self._workers) if members is None else members
        alive = [i for i in everybody if self._board.alive[i]]
        if not alive or any(i not in self.waiting or self.waiting[i].members != members for i in alive):
            return
        self._meet(Meeting(alive, [self.waiting.pop(i) for i in alive]))
