"""Where the runs of a sweep or comparison are computed, in words. What a run is, its engine says."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from offbeat.core.errors import ConfigError, unknown
from offbeat.lab.engines import entry
from offbeat.lab.runs.conditions import cores
from offbeat.lab.studies.cells import Cell, Place

PLACES = ("here", "ray")
HOW = ("processes", "on", "cpus", "again", "dry_run", "progress", "settings")
"""The words of `compare` and `sweep` that say how runs are made, and not which."""


@dataclass(frozen=True)
class Where:
    """Processes of this machine, or of a Ray cluster.

    Args:
        on: "here", or "ray".
        processes: runs side by side; None: all cores, or as many as the cluster has room for.
        address: of a running Ray cluster; None starts a Ray on this machine.
        cpus: of the cluster, set aside for each run; 1 unless given.
    """

    on: str = "here"
    processes: int | None = None
    address: str | None = None
    cpus: float | None = None

    def __post_init__(self) -> None:
        n, cpus = self.processes, self.cpus
        if self.on not in PLACES:
            raise unknown("place (--on)", str(self.on), PLACES)
        if n is not None and (isinstance(n, bool) or not isinstance(n, int) or n < 1):
            raise ConfigError(f"processes must be a number from 1, got {n!r}")
        for name in ("address", "cpus"):
            if self.on != "ray" and getattr(self, name) is not None:
                raise ConfigError(f"{name} has no effect unless runs are computed on ray: say --on ray, too")
        if cpus is not None and not (_is_number(cpus) and isfinite(cpus) and 0 < cpus <= 4096):
            raise ConfigError(f"cpus must be a number above 0, at most 4096, got {cpus!r}")

    def side_by_side(self, cells: Sequence[Cell]) -> int:
        """How many runs at a time, as far as is known beforehand; one where it needs the machine to itself."""
        real = sorted({c.config["engine"] for c in cells if entry(c.config["engine"]).real})
        if real and self.on == "ray":
            raise ConfigError(
                f"--on ray spreads simulated runs over a cluster, and engine {real[0]!r} is not simulated: leave out "
                f"--on, and its runs are made one after another"
            )
        return 1 if real else self.processes or cores()

    def open(self, cells: Sequence[Cell]) -> Place:
        """The place, ready for workers."""
        count = self.side_by_side(cells)
        if self.on == "ray":
            from offbeat.lab.studies.cells_on_ray import RayPlace, RayPortion

            return RayPlace(RayPortion(self.address, self.cpus or 1.0, self.processes), cores())
        from offbeat.lab.studies.cells_here import Here

        return Here(count)


def take_address(on: str, words: Any) -> str | None:
    """With `--on ray`, the address says where runs are computed; else it belongs to the run (`ray.address`)."""
    address: str | None = words.pop("address", None) if on == "ray" else None
    return address


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
