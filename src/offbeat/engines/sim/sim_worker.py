"""One simulated worker: its rule at work, the gradient it computes, and where its time went."""

from functools import partial
from typing import Any

from offbeat.core.feed import Feed
from offbeat.core.seeds import Dial, Draws
from offbeat.core.task import Buffers
from offbeat.engines.cluster import Cluster
from offbeat.engines.pool import Job
from offbeat.engines.running.rounds import Rounds
from offbeat.engines.sim.pace import Pace

_KEPT = ("alive", "life", "samples", "computing", "delayed", "communicating", "present", "arrived", "script", "fed")


class SimWorker:
    """A worker as the simulator sees it. It may come and go: `life` counts how often it came."""

    __slots__ = (
        "alive",
        "arrived",
        "buffers",
        "communicating",
        "computing",
        "delayed",
        "delays",
        "fed",
        "job",
        "life",
        "pace",
        "present",
        "rounds",
        "samples",
        "script",
        "times",
    )

    def __init__(self, i: int, cluster: Cluster, feed: Feed, seed: int, buffers: Buffers, dial: Dial) -> None:
        self.times = cluster.draw_times(i, partial(feed.sizes, i), seed=seed, dial=dial)
        self.pace = Pace(cluster, i, seed, dial) if cluster.slow and cluster.slowness_of(i) else None
        self.delays = [
            Draws(d.sample, seed=seed, stream=f"delay{k}", source=i, dial=dial)
            for k, d in enumerate(cluster.delays_of(i))
        ]
        self.rounds: Rounds | None = None  # until it comes for the first time
        self.alive = False
        self.life = 0  # events of an earlier life are void
        self.job: Job | None = None
        self.fed = False  # the batch of its next gradient is at hand
        self.buffers = buffers
        self.samples = 0
        self.computing = self.delayed = self.communicating = self.present = 0.0
        self.arrived = 0.0  # since when it is present
        self.script = 0  # position in a scripted schedule

    @property
    def state(self) -> Any:
        """The rule's own state; None before it came for the first time."""
        return None if self.rounds is None else self.rounds.state

    def leave(self, now: float) -> None:
        """Closes its account of presence."""
        self.present += now - self.arrived
        self.arrived = now

    def charge(self, job: Any, now: float) -> None:
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

    def saved(self) -> dict[str, Any]:
        """All but the state of its rule and the job, which are made anew."""
        kept = {name: getattr(self, name) for name in _KEPT}
        rounds = None if self.rounds is None else (self.rounds.start, self.rounds.told)
        positions = (self.times.position, [d.position for d in self.delays])
        if self.pace is not None:
            kept["pace"] = self.pace.saved()
        return {**kept, "buffers": self.buffers, "rounds": rounds, "positions": positions, "job": _saved_job(self.job)}

    def load(self, saved: dict[str, Any]) -> None:
        for name in (*_KEPT, "buffers"):
            setattr(self, name, saved[name])
        self.times.position, positions = saved["positions"]
        for delay, position in zip(self.delays, positions, strict=True):
            delay.position = position
        if self.pace is not None:
            self.pace.load(saved["pace"])
        if saved["job"] is not None:
            x, version, source, draw, started, due, delay = saved["job"]
            self.job = Job(x, version, self.buffers, source, draw, started)
            self.job.due, self.job.delay = due, delay


def _saved_job(job: Job | None) -> tuple[Any, ...] | None:
    return None if job is None else (job.x, job.version, job.source, job.draw, job.started, job.due, job.delay)
