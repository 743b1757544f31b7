"""The server's own link, which all messages share, and over how many machines the server is spread."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import shown
from offbeat.engines.cluster.rates import read_bandwidth, write_bandwidth
from offbeat.engines.cluster.validity import bandwidth, is_count

Sharing = Literal["fifo", "fair"]


@dataclass(frozen=True)
class ServerMachine:
    """What the server has beside its time of service.

    bandwidth -- bytes per second of its link, each way; all messages share it (unlimited)
    sharing -- how: "fifo", one message after another, or "fair", all at once with equal shares (fifo)
    shards -- machines that hold an equal part of the vector each, with a link of their own; one coordinator (1)
    """

    bandwidth: float = math.inf
    sharing: Sharing = "fifo"
    shards: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "bandwidth", bandwidth(self.bandwidth, "server.bandwidth"))
        if self.sharing not in get_args(Sharing):
            raise unknown("server.sharing", str(self.sharing), get_args(Sharing))
        if not is_count(self.shards) or self.shards < 1:
            raise ConfigError(f"server.shards must be a whole number from 1, got {shown(self.shards)}")
        if self.sharing != "fifo" and self.bandwidth == math.inf:
            raise ConfigError(f"server.sharing has no effect without server.bandwidth, got {shown(self.sharing)}")

    @classmethod
    def parse(cls, value: object) -> "ServerMachine":
        if isinstance(value, ServerMachine):
            return value
        if not isinstance(value, Mapping):
            raise ConfigError(f"server must be a section with keys, such as server.bandwidth, got {shown(value)}")
        for name in value:
            if name not in cls.__dataclass_fields__:
                raise unknown("cluster setting", f"server.{name}", [f"server.{n}" for n in cls.__dataclass_fields__])
        given: dict[str, Any] = dict(value)
        if "bandwidth" in given:
            given["bandwidth"] = read_bandwidth(given["bandwidth"], "server.bandwidth")
        return cls(**given)

    def written(self) -> dict[str, Any]:
        """What differs from the default."""
        own = {"bandwidth": write_bandwidth(self.bandwidth), "sharing": self.sharing, "shards": self.shards}
        return {name: value for name, value in own.items() if getattr(self, name) != getattr(ONE_SERVER, name)}

    @property
    def total(self) -> float:
        """Bytes per second of all its links together: a message goes to every shard at once, a part to each."""
        return self.bandwidth * self.shards


ONE_SERVER = ServerMachine()
"""With a link that is never full."""
