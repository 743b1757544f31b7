"""The configurations that are run on hosts with slow links, in two halves: to fit to, and to predict."""

from dataclasses import dataclass
from typing import Any

from offbeat.core.units import parse_rate
from offbeat.lab.validation.cases import Crowd, Half, RealCase
from offbeat.lab.validation.ray_hosts import HEAD

_SELDOM = "100000epochs"  # evaluations: while one is made, everybody stands still and links empty
LARGE, SMALL = 150_000, 50_000
"""Parameters of the two models, of four bytes each: sizes of messages tell latency from bandwidth."""


@dataclass(frozen=True)
class SlowLinks:
    """What the links between hosts let through, each way."""

    worker: str
    """Of each worker's host."""
    server: str
    """Of the server's host, shared by all messages."""

    def __str__(self) -> str:
        return f"workers at {self.worker}, server at {self.server}"


def for_tc(rate: str) -> str:
    """As `tc` has it: a whole number of bits a second."""
    return f"{round(8 * parse_rate(rate))}bit"


@dataclass(frozen=True)
class LinkCase(RealCase):
    """One configuration on a host for the server and one for each worker."""

    links: SlowLinks = SlowLinks("100Mbps", "100Mbps")
    parameters: int = LARGE

    @property
    def place(self) -> object:
        return self.links

    @property
    def trained(self) -> object:
        return self.model, self.parameters

    def values(self, cores: int, seconds: float, seed: int, engine: str) -> dict[str, Any]:
        """Messages go in the clear: encrypting is work for cores that all hosts share."""
        given = super().values(cores, seconds, seed, engine)
        given["task"]["parameters"] = self.parameters
        return {**given, "evaluate": {"every": _SELDOM}, "ray": {"address": HEAD, "encryption": "off"}}


NARROW = SlowLinks("20Mbps", "100Mbps")
"""Three workers together cannot fill the server's link: each is as slow as its own."""
SHARED = SlowLinks("100Mbps", "150Mbps")
"""Two workers at once fill the server's link: they share it."""


def _cases(links: SlowLinks) -> list[LinkCase]:
    def case(solver: str, workers: int, half: Half, parameters: int = LARGE) -> LinkCase:
        many = "1 worker" if workers == 1 else f"{workers} workers"
        size = "" if parameters == LARGE else ", small model"
        name = f"{solver}, {many} at {links.worker}{size}"
        return LinkCase(name, solver, half, Crowd(0, workers), 32, "mlp", links=links, parameters=parameters)

    return [
        case("asgd", 1, "fit"),
        case("asgd", 1, "fit", SMALL),
        case("asgd", 2, "fit"),
        case("sync", 3, "fit"),
        case("asgd", 3, "predict"),
        case("sync", 2, "predict"),
        case("asgd", 2, "predict", SMALL),
        case("sync", 3, "predict", SMALL),
    ]


LINK_CASES = tuple(case for links in (NARROW, SHARED) for case in _cases(links))
