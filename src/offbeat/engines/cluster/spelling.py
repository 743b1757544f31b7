"""A cluster as people write it, in JSON, TOML or on the command line: one line for each of its settings."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import format_duration, parse_duration
from offbeat.engines.cluster.distributions import parse_distribution
from offbeat.engines.cluster.events import Event
from offbeat.engines.cluster.links import PeerLatency
from offbeat.engines.cluster.losses import Loss
from offbeat.engines.cluster.named import MOST_ENTRIES, MOST_NAMED
from offbeat.engines.cluster.per_worker import PerWorker
from offbeat.engines.cluster.rates import read_bandwidth, write_bandwidth
from offbeat.engines.cluster.reduction_cost import AllReduceCost
from offbeat.engines.cluster.server import ServerMachine
from offbeat.engines.cluster.speed import Slowness, Speed
from offbeat.engines.cluster.topology import Links
from offbeat.engines.cluster.validity import check_count_of_workers, listed


class Spelling(NamedTuple):
    """How a setting is read, given the number of workers, and how it is written."""

    read: Callable[[Any, int], Any]
    write: Callable[[Any], Any]
    young: bool = False
    """Younger than many runs, whose addresses stay: written only where it is set."""


def _several(what: str, read: Callable[[Any, int], Any]) -> Spelling:
    """One value, or a list of them."""
    return Spelling(lambda value, workers: _entries(what, read, value, workers), _texts)


def _entries(what: str, read: Callable[[Any, int], Any], value: Any, workers: int) -> tuple[Any, ...]:
    given = value if isinstance(value, tuple | list) else (value,)
    if len(given) > MOST_ENTRIES:
        raise ConfigError(f"{what} takes at most {MOST_ENTRIES:,} entries, got {len(given):,}")
    found, named = [], 0
    for entry in given:
        found.append(read(entry, workers))
        named += sum(len(getattr(found[-1], name, None) or ()) for name in ("workers", "one", "other"))
        if named > MOST_NAMED:
            raise ConfigError(f"the entries of {what} name more than {MOST_NAMED:,} workers in all; '10ms' is for all")
    return tuple(found)


def _texts(values: Any) -> list[str]:
    return [str(value) for value in values]


def _as_it_is() -> Spelling:
    return Spelling(lambda value, _: value, lambda value: value)


def _times(what: str) -> Spelling:
    return _several(what, lambda value, workers: PerWorker.parse(value, workers, what))


def _duration(what: str) -> Spelling:
    return Spelling(lambda value, _: parse_duration(value, what), format_duration)


def _distribution(what: str) -> Spelling:
    return Spelling(lambda value, _: parse_distribution(value, what), str)


def _read_schedule(value: Any, workers: int) -> Any:
    return None if value is None else tuple(_scheduled(row) for row in listed(value, "schedule"))


def _scheduled(row: Any) -> Any:
    """A row with its time read; anything that is not a pair is left for the cluster to refuse."""
    if isinstance(row, tuple | list) and len(row) == 2:
        return parse_duration(row[0], "schedule time"), row[1]
    return row


SPELLINGS: Mapping[str, Spelling] = {
    "workers": _as_it_is(),
    "compute": _times("compute"),
    "delay": _times("delay"),
    "latency": _duration("latency"),
    "bandwidth": Spelling(lambda value, _: read_bandwidth(value), write_bandwidth),
    "service": _distribution("service"),
    "allreduce": Spelling(lambda value, _: AllReduceCost.parse(value), str),
    "events": _several("events", lambda value, _: Event.parse(value)),
    "peers": _several("peers", PeerLatency.parse),
    "memory": _duration("memory"),
    "feeder": _distribution("feeder"),
    "schedule": Spelling(_read_schedule, lambda rows: [[at, worker] for at, worker in rows]),
    "server": Spelling(lambda value, _: ServerMachine.parse(value), ServerMachine.written, young=True),
    "speed": _several("speed", Speed.parse)._replace(young=True),
    "slow": _several("slow", Slowness.parse)._replace(young=True),
    "cores": _as_it_is()._replace(young=True),
    "cores_for": _as_it_is()._replace(young=True),
    "slice": _distribution("slice")._replace(young=True),
    "loss": _several("loss", Loss.parse)._replace(young=True),
    "nodes": _as_it_is()._replace(young=True),
    "racks": _as_it_is()._replace(young=True),
    "link": Spelling(lambda value, _: Links.parse(value), Links.written, young=True),
}
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "server": tuple(ServerMachine.__dataclass_fields__),
    "link": tuple(Links.__dataclass_fields__),
}
"""Settings with keys of their own: `server.bandwidth`."""


def read(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a cluster, from plain values."""
    for name in values:
        if name not in SPELLINGS:
            raise unknown("cluster setting", name, list(SPELLINGS))
    workers = values.get("workers", 1)
    check_count_of_workers(workers)
    return {name: spelling.read(values[name], workers) for name, spelling in SPELLINGS.items() if name in values}


def written(cluster: Any) -> dict[str, Any]:
    """Plain values that `read` makes the same fields of. What is None is left out, because TOML has no null."""
    usual = {name: field.default for name, field in cluster.__dataclass_fields__.items()}
    found = {}
    for name, spelling in SPELLINGS.items():
        value = getattr(cluster, name)
        if value is not None and not (spelling.young and value == usual[name]):
            found[name] = spelling.write(value)
    return found
