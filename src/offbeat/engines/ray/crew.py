"""The processes that Ray gives us: one for the server, one for each worker, in a placement group."""

import re
import time
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.memory import require
from offbeat.engines.ray.connection import Connection
from offbeat.engines.ray.host import About, Host, node_address, versions
from offbeat.engines.ray.ray_options import RayOptions
from offbeat.engines.ray.shard_messages import rank_of
from offbeat.engines.real.transport import RunError

SERVER = -1
_START_SECONDS = 120.0  # for a process to start and import torch
_LOOK_SECONDS = 1.0  # between two looks at what is free
_ERROR = re.compile(r"[\w.]*(Error|Exception)\b")
_PROCESS = 200 << 20  # bytes that a process of Ray with torch takes, beside what it shares with others
_TINY = 0.001  # of a node's own resource: enough to be placed there


class Crew:
    """Hosts by rank, started when they are asked for. A crew may serve many runs, one after another.

    Places for the server, its shards and the first `workers` are set aside; others come where something is free.
    """

    def __init__(self, workers: int, options: RayOptions, *, together: bool = False) -> None:
        """`together`: all on one machine."""
        self.options, self._workers, self._together = options, workers, together
        self._machine = ""  # the server's, once it is known
        self._shards = options.shards if options.shards > 1 else 0
        cpus = workers * options.cpus + (1 + self._shards) * options.server_cpus
        if options.address is None:  # a Ray of our own offers whatever is asked
            processes = workers + 1 + self._shards
            instead = "take fewer workers, or a cluster (--address)"
            require(processes * _PROCESS, f"{processes} processes on this machine (workers and server)", instead)
        self._connection = Connection(options.address, cpus)
        import ray

        self._hosts: dict[int, Any] = {}
        actor = ray.remote(concurrency_groups={"run": 1, "inbox": 1, "outbox": 1})(Host)
        self._actor = actor
        self._each = _some({"CPU": options.cpus, "GPU": options.gpus})
        self._shard = {"CPU": options.server_cpus} if options.server_cpus else {"memory": 1.0}  # a byte is something
        self._bundles = [_some(self._server_bundle()), *([self._each] * workers), *([self._shard] * self._shards)]
        self._looked, self._available, self._whole = 0.0, dict[str, float](), True
        try:
            self._check_resources()
            strategy = "STRICT_PACK" if together else "SPREAD"
            self._group = ray.util.placement_group(self._bundles, strategy=strategy)
            if not self._group.wait(options.wait_seconds):
                raise ConfigError(
                    f"Ray did not find places for {workers} workers and a server within "
                    f"{options.wait_seconds:.0f} s: others use the cluster, or one machine is too small"
                    + (" (this method needs memory that all share: all on one machine)" if together else "")
                )
        except BaseException:
            self._connection.close()
            raise

    def _server_bundle(self) -> dict[str, float]:
        place = self.options.server
        bundle = {"CPU": self.options.server_cpus}
        if place != "any":
            bundle[f"node:{node_address() if place == 'driver' else place}"] = _TINY
        return bundle

    def _check_resources(self) -> None:
        """What is asked and what there is, rather than a wait without end."""
        import ray

        there = ray.cluster_resources()
        for name in sorted({name for b in self._bundles for name in b}):
            asked, have = sum(b.get(name, 0.0) for b in self._bundles), there.get(name, 0.0)
            if asked <= have:
                continue
            if name.startswith("node:"):
                nodes = ", ".join(sorted(n["NodeManagerAddress"] for n in ray.nodes() if n["Alive"]))
                raise ConfigError(f"ray.server={name[5:]}: there is no such machine in the cluster (there: {nodes})")
            raise ConfigError(
                f"the run asks for {asked:g} {name}s ({self._workers} workers), the Ray cluster has {have:g}: "
                f"use fewer workers, or a smaller ray.{name.lower()}s"
            )

    def promised(self, rank: int) -> bool:
        """Whether a place was set aside for it at the start."""
        return SERVER <= rank < self._workers or rank_of(self._shards) < rank < SERVER

    def free(self, rank: int) -> bool:
        """Whether there is a place for it now, as far as Ray knows."""
        import ray

        if time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked, self._available = time.monotonic(), ray.available_resources()
            table = ray.util.placement_group_table(self._group)
            self._whole = table["state"] == "CREATED"
        if self.promised(rank):
            return self._whole
        asked = self._bundle(rank)
        found = all(self._available.get(name, 0.0) >= amount for name, amount in asked.items())
        if found:  # the next one finds what is left
            for name, amount in asked.items():
                self._available[name] -= amount
        return found

    def _bundle(self, rank: int) -> dict[str, float]:
        if self.promised(rank):
            return self._bundles[self._index(rank)]
        beside = {f"node:{self._machine}": _TINY} if self._together and self._machine else {}
        return {**(self._shard if rank < SERVER else self._each), **beside}

    def _index(self, rank: int) -> int:
        """Of its place in the group: the server's, those of workers, those of shards."""
        return rank + 1 if rank >= SERVER else self._workers + 1 + (rank_of(0) - rank)

    def host(self, rank: int) -> Any:
        """The process of this rank, which may still be starting."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if rank not in self._hosts:
            bundle = self._bundle(rank)
            place: Any = "SPREAD"
            if self.promised(rank):
                place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=self._index(rank))
            self._hosts[rank] = self._actor.options(
                num_cpus=bundle.get("CPU", 0.0),
                num_gpus=bundle.get("GPU", 0.0),
                memory=bundle.get("memory"),
                resources={k: v for k, v in bundle.items() if k.startswith("node:")},
                scheduling_strategy=place,
                max_restarts=0,
                runtime_env={"env_vars": self._connection.environment} if self._connection.environment else None,
            ).remote()
        return self._hosts[rank]

    def start(self, ranks: list[int]) -> dict[int, About]:
        """Waits until these are there; refuses those whose versions are not ours."""
        import ray

        asked = {rank: self.host(rank).about.remote() for rank in ranks}
        try:
            found: dict[int, About] = dict(
                zip(asked, ray.get(list(asked.values()), timeout=_START_SECONDS), strict=True)
            )
        except ray.exceptions.GetTimeoutError:
            raise RunError(f"Ray did not start {len(ranks)} processes within {_START_SECONDS:.0f} s") from None
        except ray.exceptions.RayError as e:
            raise ConfigError(f"Ray could not start the run's processes: {root_of(e)}") from None
        for about in found.values():
            check_versions(about)
        self._machine = found[SERVER].node if SERVER in found else self._machine
        return found

    def end(self, rank: int) -> None:
        """Kills it; another takes its place when it is asked for."""
        import ray

        host = self._hosts.pop(rank, None)
        if host is not None:
            ray.kill(host)

    def forget(self, rank: int, host: Any) -> None:
        """This one has ended; another may have taken its place already."""
        if self._hosts.get(rank) is host:
            del self._hosts[rank]

    def close(self) -> None:
        import ray

        if ray.is_initialized():
            for rank in list(self._hosts):
                self.end(rank)
            ray.util.remove_placement_group(self._group)
        self._connection.close()


def _some(bundle: dict[str, float]) -> dict[str, float]:
    """Ray wants something to be asked for."""
    return {k: v for k, v in bundle.items() if v} or {"CPU": _TINY}


def root_of(e: BaseException) -> str:
    """What was at the bottom of an error of Ray's, which comes in pages: the last line that names an error."""
    lines = [line.strip() for line in str(e).splitlines() if line.strip()] or [type(e).__name__]
    return next((line for line in reversed(lines) if _ERROR.match(line)), lines[0])


def check_versions(there: About) -> None:
    """With others, results would not have the same bits, or messages not the same form."""
    here = versions()
    differ = [f"{name} {there.versions[name]} there, {v} here" for name, v in here.items() if there.versions[name] != v]
    if differ:
        raise ConfigError(f"machine {there.node} has other versions: {'; '.join(differ)}")
