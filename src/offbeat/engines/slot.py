"""One simulated worker: its rule in progress, what it was fed since its round began, and where its time went."""

from collections.abc import Sequence
from typing import Any

from offbeat.core.effects import Gradient
from offbeat.core.reduction import weighted_mean
from offbeat.core.seeds import Dial, Draws
from offbeat.core.task import Buffers
from offbeat.engines.cluster import Cluster
from offbeat.engines.pool import Job


class WorkerSlot:
    """A worker as the simulator sees it."""

    __slots__ = (
        "alive",
        "answers",
        "arrived",
        "buffers",
        "communicating",
        "computing",
        "delayed",
        "delays",
        "fed",
        "gradient",
        "job",
        "life",
        "present",
        "round",
        "samples",
        "script",
        "start",
        "state",
        "times",
    )

    def __init__(self, i: int, cluster: Cluster, seed: int, buffers: Buffers, dial: Dial) -> None:
        self.times = Draws(cluster.compute_of(i).sample, seed=seed, stream="compute", source=i, dial=dial)
        self.delays = [
            Draws(d.sample, seed=seed, stream=f"delay{k}", source=i, dial=dial)
            for k, d in enumerate(cluster.delays_of(i))
        ]
        self.state: Any = None
        self.start: Any = None  # the state when the round began
        self.answers: list[Any] = []  # what the round was sent since
        self.round: Any = None
        self.alive = False
        self.life = 0  # events of an earlier life are void
        self.job: Job | None = None
        self.gradient: Gradient | None = None  # computed, and still in the hands of its rule
        self.fed = False  # the batch of its next gradient is at hand
        self.buffers = buffers
        self.samples = 0
        self.computing = self.delayed = self.communicating = self.present = 0.0
        self.arrived = 0.0  # since when it is present
        self.script = 0  # position in a scripted schedule

    def leave(self, now: float) -> None:
        """Closes its account of presence."""
        self.present += now - self.arrived
        self.arrived = now

    def charge(self, job: Job, now: float) -> None:
        """Time spent on a gradient, finished or not: injected delay first, computing after it."""
        spent = now - job.started
        delayed = min(job.delay, spent)
        self.delayed += delayed
        self.computing += spent - delayed

    def breakdown(self, now: float) -> dict[str, float]:
        """Seconds present, and how they were spent; waiting is what is left."""
        present = self.present + (now - self.arrived if self.alive else 0.0)
        computing, delayed = self.computing, self.delayed
        if self.job is not None:
            spent = now - self.job.started
            delayed += min(self.job.delay, spent)
            computing += spent - min(self.job.delay, spent)
        # A message still under way at the end was charged in full when it was sent.
        communicating = max(0.0, min(self.communicating, present - computing - delayed))
        return {
            "present": present,
            "computing": computing,
            "delayed": delayed,
            "communicating": communicating,
            "waiting": max(0.0, present - computing - delayed - communicating),
        }


def split_schedule(cluster: Cluster) -> list[list[float]] | None:
    """A scripted schedule as finish times per worker."""
    if cluster.schedule is None:
        return None
    scripts: list[list[float]] = [[] for _ in range(cluster.workers)]
    for time, worker in cluster.schedule:
        scripts[worker].append(time)
    return scripts


def mean_buffers(initial: Buffers, owned: Sequence[Buffers]) -> Buffers:
    """Each worker keeps its own statistics; evaluation uses their mean in worker order. Counters: the largest."""
    held = [b for b in owned if b is not None]
    if initial is None or not held:
        return initial
    out = {}
    for name, tensor in initial.items():
        values = [b[name] for b in held]
        if tensor.is_floating_point():
            out[name] = weighted_mean(values, [1.0] * len(values))
        else:
            out[name] = max(values, key=lambda v: v.sum().item())
    return out
