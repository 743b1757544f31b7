"""What messages cost: over one link, and between two workers."""

import math
import re
from dataclasses import dataclass

from offbeat.core.errors import ConfigError
from offbeat.core.units import format_duration, format_workers, parse_duration, parse_workers, shown
from offbeat.engines.cluster.rates import UNLIMITED, read_bandwidth, write_bandwidth
from offbeat.engines.cluster.validity import bandwidth, seconds

_TIME = re.compile(r"[0-9.eE+-]+\s*(?:ns|us|µs|μs|ms|s|min|h)?")


@dataclass(frozen=True)
class Link:
    """Seconds each way, and bytes per second: "5us, 100Gbps"."""

    latency: float = 0.0
    bandwidth: float = math.inf

    def __post_init__(self) -> None:
        object.__setattr__(self, "latency", seconds(self.latency, "link latency"))
        object.__setattr__(self, "bandwidth", bandwidth(self.bandwidth, "link bandwidth"))

    @classmethod
    def parse(cls, value: object, what: str) -> "Link":
        if isinstance(value, Link):
            return value
        found: dict[str, float] = {}
        for part in value.split(",") if isinstance(value, str) else ():
            part = part.strip()
            if _TIME.fullmatch(part):
                name, number = "latency", parse_duration(part, what)
            else:
                name, number = "bandwidth", read_bandwidth(part, what)
            if name in found:
                raise ConfigError(f"{what} takes one latency and one bandwidth, got {shown(value)}")
            found[name] = number
        if not found:
            raise ConfigError(f"{what} must be like '5us, 100Gbps', got {shown(value)}")
        return cls(**found)

    def seconds(self, num_bytes: float, flows: int = 1) -> float:
        """One message, or `flows` of them at once over the same wire: latency + flows N / bandwidth."""
        return self.latency + flows * num_bytes / self.bandwidth

    def __str__(self) -> str:
        rate = write_bandwidth(self.bandwidth)
        return f"{format_duration(self.latency)}, {rate}" if rate != UNLIMITED else format_duration(self.latency)


@dataclass(frozen=True)
class PeerLatency:
    """Latency between two sets of workers, both ways: "5ms@0-3>4-7"; "2ms" is for every pair."""

    latency: float
    one: tuple[int, ...] | None = None
    other: tuple[int, ...] | None = None

    @classmethod
    def parse(cls, value: object, num_workers: int) -> "PeerLatency":
        if isinstance(value, PeerLatency):
            return value
        text = value if isinstance(value, str) else str(value)
        time, at, pair = text.partition("@")
        if not at:
            return cls(parse_duration(value, "peers"))
        one, arrow, other = pair.partition(">")
        if not arrow:
            raise ConfigError(f"peers must be like '2ms' or '5ms@0-3>4-7', got {shown(value)}")
        sets = (parse_workers(part, num_workers, "peers") for part in (one, other))
        return cls(parse_duration(time, "peers"), *sets)

    def applies_to(self, i: int, j: int) -> bool:
        if self.one is None or self.other is None:
            return True
        return (i in self.one and j in self.other) or (j in self.one and i in self.other)

    def __str__(self) -> str:
        time = format_duration(self.latency)
        if self.one is None or self.other is None:
            return time
        return f"{time}@{format_workers(self.one)}>{format_workers(self.other)}"
