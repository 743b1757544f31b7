"""Workers that sum among themselves, over connections that torch.distributed makes: gloo, or NCCL on GPUs.

It carries bytes and adds nothing: every member gets the others' parts of its slice and sums them in worker order, then
everybody gets all slices. That moves as many bytes as a ring does, and a sum has the bits it has everywhere
(`core/reduction.py`). In several teams, each sums first, and then the first members of the teams do.
"""

import re
import threading
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from torch.distributed import PrefixStore, ProcessGroupGloo, Store  # type: ignore[attr-defined]

from offbeat.core.reduction import total
from offbeat.engines.ray.notes import Notes

_CLOSING = 1.0  # seconds for connections to close: a process must not end in the middle of that
_PLACE = re.compile(r"^\[[^\]]*\] ")


class Adding:
    """One sum: what it came to, or why it did not."""

    def __init__(self, own: Tensor, givers: Collection[int]) -> None:
        self.own, self.givers = own, givers
        self.result: Tensor | None = None
        self.why = ""
        self.done = threading.Event()


class Circle:
    """One member's part. A thread of its own waits for the others: whoever asks for a sum can look elsewhere meanwhile.

    It ends with the first sum that fails, as its connections do. A new one is made then, with those who remain.
    """

    def __init__(self, rank: int, teams: Sequence[Sequence[int]], notes: Notes, address: str, patience: float) -> None:
        """`teams` in worker order; `address`: of this machine, where others find us; `patience`, in seconds, of each
        step of a sum."""
        self._rank, self._teams, self.notes = rank, teams, notes
        self._connect = lambda name, members, device: Connected(
            _group(device, PrefixStore(name, notes), members.index(rank), len(members), address, patience)
        )
        self._jobs: SimpleQueue[Adding | None] = SimpleQueue()
        self.connected = False
        self._thread = threading.Thread(target=self._run, name="sums", daemon=True)
        self._thread.start()

    def sum(self, own: Tensor, givers: Collection[int]) -> Adding:
        """Adds up the vectors of all `givers`; `own` is ours, and does not count if we are none of them."""
        job = Adding(own, givers)
        self._jobs.put(job)
        return job

    def close(self) -> None:
        """Gives up what is under way. Connections are closed by the thread: at once, unless torch is waiting in it."""
        self.notes.close()
        self._jobs.put(None)
        self._thread.join(_CLOSING)

    # -- the thread's -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        levels: _Levels | None = None
        while (job := self._jobs.get()) is not None:
            try:
                if levels is None:
                    levels = _Levels(self._rank, self._teams, job.own.device, self._connect)
                    self.connected = True
                job.result = levels.total(job.own, job.givers)
            except Exception as e:  # of any kind: torch does not say which
                job.why = _words_of(e)
                levels = None  # what is left of the connections is closed before anybody hears of it
                self.notes.close()
            job.done.set()


class _Levels:
    """The connections of one member: to its team, and between the first of each team."""

    def __init__(
        self,
        rank: int,
        teams: Sequence[Sequence[int]],
        device: torch.device,
        connect: "Callable[[str, Sequence[int], torch.device], Connected]",
    ) -> None:
        self._teams, self._k = teams, next(k for k, team in enumerate(teams) if rank in team)
        team, leaders = teams[self._k], [team[0] for team in teams]
        self._within = connect(f"team {self._k}", team, device) if len(team) > 1 else None
        self._between = connect("leaders", leaders, device) if len(teams) > 1 and rank == team[0] else None

    def total(self, own: Tensor, givers: Collection[int]) -> Tensor:
        gives = [[i in givers for i in team] for team in self._teams]
        if self._within is not None and any(gives[self._k]):
            own = self._within.total(own, gives[self._k])
        if self._between is not None:
            own = self._between.total(own, [any(team) for team in gives])
        if self._within is not None and len(self._teams) > 1:
            own = self._within.from_the_first(own)
        return own


class Connected:
    """A few processes that torch.distributed has connected."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def total(self, own: Tensor, gives: Sequence[bool]) -> Tensor:
        """The sum of the vectors of those who give one, in their order, for everybody."""
        n, size = len(gives), own.numel()
        each = -(-size // n)  # the last slice is filled up with zeros
        out, came = own.new_zeros(n * each), own.new_empty(n * each)
        out[:size] = own
        self._group.alltoall_base(_bytes(came), _bytes(out), [], []).wait()
        mine = total(came[k * each : (k + 1) * each] for k in range(n) if gives[k])
        self._group._allgather_base(_bytes(out), _bytes(mine)).wait()
        return out[:size]

    def from_the_first(self, own: Tensor) -> Tensor:
        """The vector of the first of them, for everybody."""
        found = own.clone()
        self._group.broadcast(_bytes(found), 0).wait()
        return found


def _words_of(e: Exception) -> str:
    """Its first sentence, without the place in torch's own code."""
    first = next(iter(str(e).splitlines()), "") or type(e).__name__
    return _PLACE.sub("", first).split(". ")[0]


def _bytes(t: Tensor) -> Tensor:
    """The same memory: of any type, as nothing is added on the way."""
    return t.view(torch.uint8)


def _group(device: torch.device, store: Store, rank: int, size: int, address: str, patience: float) -> Any:
    """A process group of torch's, which is nobody else's: a task may have the default one for itself."""
    if device.type == "cuda":  # not tried: there was no GPU
        from torch.distributed import ProcessGroupNCCL

        options = ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=patience)
        return ProcessGroupNCCL(store, rank, size, options)
    given = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    given._devices = [ProcessGroupGloo.create_device(hostname=address)]
    given._timeout = timedelta(seconds=patience)
    return ProcessGroupGloo(store, rank, size, given)
