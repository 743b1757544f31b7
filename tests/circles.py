"""Workers that sum among themselves, all in this process: what they say goes through here, as through the server."""

import threading
import time
from collections import deque
from types import SimpleNamespace

from offbeat.core.effects import AllReduce
from offbeat.engines.ray.circles_at_server import CirclesAtServer
from offbeat.engines.ray.circles_at_worker import CirclesAtWorker
from offbeat.engines.real.gathering import Meeting

PATIENCE = 20.0


class Table:
    """A server and workers. Each worker does in a thread of its own what it is told; `lose` ends one."""

    def __init__(self, machines):
        self.machines = dict(enumerate(machines))
        self.told = {i: deque() for i in self.machines}
        self.said = deque()
        self.workers = {i: self._worker(i) for i in self.machines}
        self.given_up = []
        self.server = CirclesAtServer(self._place, self._send, lambda i, _: self.given_up.append(i), 0.0)
        self.met = []

    def _place(self, i):
        return (1, self.machines[i]) if i in self.machines else None

    def _send(self, i, message):
        if i in self.told:
            self.told[i].append(message)

    def _worker(self, i):
        def listen():
            if self.told[i]:
                message = self.told[i].popleft()
                assert type(message).__name__ in ("Told", "Disband")
                sums.hear(message)

        sums = CirclesAtWorker(i, "127.0.0.1", PATIENCE, lambda message: self.said.append((i, message)), listen)
        return sums

    def reduce(self, values, weights=None, group=None):
        """Everybody who is there comes to an all-reduce."""
        there = sorted(self.machines)
        weights = weights or [1.0] * len(there)
        asked = [
            self.workers[i].give(AllReduce(v, n, None, group)) for i, v, n in zip(there, values, weights, strict=True)
        ]
        self.server.begin(Meeting(there, asked), lambda *met: self.met.append(SimpleNamespace(meeting=met[0])))

    def obey(self, i):
        """Worker i does what it was told next, in a thread."""
        message = self.told[i].popleft()
        if type(message).__name__ != "SumUp":
            self.workers[i].hear(message)
            return None
        thread = threading.Thread(target=self.workers[i].sum, args=(message,), daemon=True)
        thread.start()
        return thread

    def until(self, holds):
        """Passes messages to and fro until it does."""
        busy = {}
        deadline = time.monotonic() + 10 * PATIENCE  # a sum that fails is made again
        while not holds():
            assert time.monotonic() < deadline, "it did not come to that"
            for i in list(self.told):
                if i in busy and busy[i].is_alive():
                    continue
                if self.told[i] and (thread := self.obey(i)) is not None:
                    busy[i] = thread
            while self.said:
                i, message = self.said.popleft()
                if type(message).__name__ == "Tell":
                    self.server.tell(i, message)
                else:
                    self.server.summed(i, message)
            self.server.look()
            time.sleep(0.001)

    def means(self):
        """What it came to for each, and who was in it."""
        self.until(lambda: self.met)
        found = self.met.pop()
        return [self.workers[i].mean for i in found.meeting.alive], found.meeting

    def lose(self, i):
        del self.machines[i], self.told[i]
        self.workers.pop(i).close()
        self.server.lost(i)

    def close(self):
        for worker in self.workers.values():
            worker.close()
