"""How many workers a run is to have, who comes or goes for it, and who does not come back."""

from collections.abc import Callable

from offbeat.core.errors import ConfigError
from offbeat.core.solver import Solver


class Staffing:
    """The number that is wanted, between a floor and the places that the run was made with."""

    def __init__(self, places: int, begin: int, floor: int) -> None:
        self.places, self.floor = places, floor
        self.wanted = begin
        self.done: set[int] = set()
        """Have done their part: they do not come back."""
        self.left_out: set[int] = set()
        """Were lost too often, or are not to be restarted: they come back only if somebody asks for more."""
        self.leaving: set[int] = set()
        """Were asked to leave."""
        self._taken: set[int] = set()  # by the description of the cluster, which may bring them back

    @property
    def at_rest(self) -> set[int]:
        """Whose shares of the data nobody takes over: those of workers that have had their part."""
        return self.done | self._taken

    def taken(self, i: int) -> None:
        """The description of the cluster has it lost."""
        self._taken.add(i)
        self.wanted = max(0, self.wanted - 1)

    def brought(self, i: int) -> None:
        """The description of the cluster has it join."""
        self._taken.discard(i)
        self.wanted += 1

    def ask(self, workers: int, solver: Solver, there: set[int]) -> str:
        """From now on, so many are wanted; what that means, in words. Refuses what cannot be."""
        most = self.places - len(self.done)
        if not solver.takes_in:
            raise ConfigError(
                f"{type(solver).__name__} cannot take in workers that join later: there is no server that could send "
                "them the parameters; so its number of workers stays"
            )
        if not self.floor <= workers <= self.places:
            raise ConfigError(
                f"this run may have {self.floor} to {self.places} workers (local.floor, cluster.workers), got {workers}"
            )
        if workers > most:
            raise ConfigError(f"{len(self.done)} workers have done their part: at most {most} can be there")
        self.wanted = workers
        self.left_out.clear()
        return f"{len(there)} workers are there, {workers} are wanted"

    def leavers(self, there: set[int]) -> list[int]:
        """Who has to go, the last first come."""
        return sorted(there)[self.wanted :] if len(there) > self.wanted else []

    def missing(self, there: set[int]) -> list[int]:
        """Who could come, as long as more are wanted than are there."""
        absent = [i for i in range(self.places) if i not in there | self.at_rest | self.left_out]
        return absent if len(there) < self.wanted else []

    def joiners(self, there: set[int], room: Callable[[int], bool]) -> list[int]:
        """Who may come, of those for whom there is a place now."""
        found: list[int] = []
        for i in self.missing(there):
            if len(there) + len(found) < self.wanted and room(i):
                found.append(i)
        return found

    def gone(self, i: int, *, lost: bool, comes_back: bool) -> None:
        """One has gone: it was asked to, has done its part, or was lost."""
        if i in self.leaving:
            self.leaving.discard(i)
        elif not lost:
            self.done.add(i)
            self.wanted = max(0, self.wanted - 1)
        elif not comes_back:
            self.left_out.add(i)
            self.wanted = max(0, self.wanted - 1)
