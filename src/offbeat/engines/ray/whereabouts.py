"""Where the processes of a run on a cluster are, and what became of one that is gone."""

import contextlib
from collections.abc import Mapping
from typing import Any

from offbeat.engines.ray.connection import is_there
from offbeat.engines.ray.host import About, node_address
from offbeat.engines.ray.last_words import end_of, how_it_ended
from offbeat.engines.real.machine import times_out_of_memory

_LOG_SECONDS = 2.0  # for another process to read the log of one that ended


class Whereabouts:
    """By rank. What a process has left on its machine is read there, if anybody can."""

    def __init__(self) -> None:
        self.nodes: dict[int, str] = {}
        """The address of the machine of each, where it was placed last,"""
        self.pids: dict[int, int] = {}
        """and the number of its process there."""
        self._logs: dict[int, str] = {}  # where each complains, on its machine
        self._out_of_memory = times_out_of_memory()

    def note(self, rank: int, about: About) -> None:
        self.nodes[rank], self.pids[rank], self._logs[rank] = about.node, about.pid, about.log

    def how_it_ended(self, rank: int, words: str, others: Mapping[int, Any]) -> str:
        """Of a process that did not end by itself. `words`: Ray's; `others`: who is left, on any machine.

        It may take seconds: a machine that is cut off does not answer.
        """
        node = self.nodes.get(rank)
        if node is None:
            return "its process ended"
        if not is_there(node):
            return f"its machine {node} was lost"
        here = node == node_address()
        times, before = times_out_of_memory() if here else 0, self._out_of_memory
        self._out_of_memory = max(times, before)
        near = [host for i, host in others.items() if self.nodes.get(i) == node]
        left = end_of(self._logs.get(rank, "")) if here else self._read_there(rank, near)
        return how_it_ended(left, words, times > before)

    def _read_there(self, rank: int, near: list[Any]) -> str:
        """The end of its log, by another process of ours on that machine; where there is none, nobody can."""
        import ray

        path = self._logs.get(rank, "")
        for host in near if path else ():
            with contextlib.suppress(ray.exceptions.RayError):
                found: str = ray.get(
                    host.end_of_log.options(concurrency_group="outbox").remote(path), timeout=_LOG_SECONDS
                )
                return found
        return ""
