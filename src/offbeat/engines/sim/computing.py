"""Gradients in the simulator: when each is due, who computes it, and the generator node that feeds mini-batches."""

from math import inf
from typing import Any

from offbeat.core.effects import Batch, Grad, Gradient
from offbeat.core.errors import ConfigError
from offbeat.core.seeds import Draws
from offbeat.core.trace import IN_FLIGHT
from offbeat.engines.cluster import Cluster
from offbeat.engines.pool import Job, Pool
from offbeat.engines.running.gradients import compute, stamp
from offbeat.engines.sim.context import Context
from offbeat.engines.sim.cores import Cores, share_cores
from offbeat.engines.sim.event_heap import COMPUTED, FED
from offbeat.engines.sim.sim_worker import SimWorker


class Computing:
    """A gradient's point and batch are known when it starts, its result is needed when it is due: in between the pool
    computes it, side by side with others."""

    def __init__(self, context: Context, *, threads: int, quota: int | None) -> None:
        self._context, self._quota = context, quota
        cluster = context.cluster
        self.scripts = split_schedule(cluster)
        self.feeder: Draws | None = None  # the mini-batch generator node ...
        if cluster.feeder.mean > 0:
            draw = cluster.feeder.sample
            self.feeder = Draws(draw, seed=context.seed, stream="feeder", source=0, dial=context.dial)
        self._fed = 0.0  # ... is busy until then
        self.cores = Cores(context, self._ready) if share_cores(cluster) else None
        if self.cores is not None and self.cores.everything:
            context.spend = self.cores.spend
        # A single worker has one gradient in flight: a pool could only add overhead.
        self.pool = Pool(self._compute, threads if cluster.workers > 1 else 0)

    # -- starting -----------------------------------------------------------------------------------------------

    def begin(self, i: int, w: SimWorker, effect: Grad) -> None:
        if (self._quota is not None and w.samples >= self._quota) or i in self._context.leaving:
            assert w.rounds is not None
            if w.rounds.pushed is None:
                self._context.leave(i)
            else:  # it leaves when its last message is answered
                self._context.advance(i, w, None)
            return
        if self.feeder is None or w.fed:
            w.fed = False
            self.from_now(i, w, effect)
        else:
            self._order_batch(i, w, effect)

    def wait_for_batch(self, i: int, w: SimWorker, effect: Batch) -> None:
        if self.feeder is None:
            self._context.advance(i, w, None)
        else:
            self._order_batch(i, w, None)

    def _order_batch(self, i: int, w: SimWorker, effect: Grad | None) -> None:
        """The generator node makes one batch at a time, first come first served."""
        assert self.feeder is not None
        self._fed = max(self._context.now, self._fed) + self.feeder.next()
        self._context.events.push(self._fed, i, FED, (w.life, effect))

    def batch_arrived(self, i: int, data: tuple[int, Grad | None]) -> None:
        w, (life, effect) = self._context.workers[i], data
        if self._context.void(i, life):
            return
        if effect is not None:
            self.from_now(i, w, effect)
        else:
            w.fed = True
            self._context.advance(i, w, None)

    def from_now(self, i: int, w: SimWorker, effect: Grad) -> None:
        context = self._context
        source, draw = context.feed.take(i)
        job = Job(effect.at, effect.version, w.buffers, source, draw, context.now)
        w.job = job
        if self.cores is None:
            job.delay, job.due = self.span(i, w)
            if job.due < inf:
                context.events.push(job.due, i, COMPUTED, job)
        else:
            job.delay, work = self.parts(w)
            job.due = context.now + job.delay + work  # with a core of its own: in which order the pool computes
            self.cores.begin(i, job.delay, work)
        self.dispatch(job)

    def span(self, i: int, w: SimWorker) -> tuple[float, float]:
        """How much of worker i's next gradient is injected delay, and when it is due."""
        now = self._context.now
        if self.scripts is not None:
            return 0.0, self._scripted(i, w)
        delay, work = self.parts(w)
        return delay, now + (work + delay) if w.pace is None else w.pace.due(now + delay, work)

    def parts(self, w: SimWorker) -> tuple[float, float]:
        """The injected delay of the worker's next gradient, and how long it computes at its usual speed."""
        delay = 0.0
        for extra in w.delays:
            delay += extra.next()
        return delay, w.times.next()

    def _scripted(self, i: int, w: SimWorker) -> float:
        assert self.scripts is not None
        script, now = self.scripts[i], self._context.now
        if w.script == len(script):
            return inf
        due = script[w.script]
        if due < now:
            raise ConfigError(
                f"schedule: worker {i} cannot finish its gradient {w.script} at {due} s, it starts at {now} s"
            )
        w.script += 1
        return due

    # -- computing ----------------------------------------------------------------------------------------------

    def dispatch(self, job: Job) -> None:
        if job.due < inf and not self._context.timing:
            self.pool.add(job)

    def _compute(self, job: Job) -> Gradient:
        c = self._context
        return compute(c.task, c.feed, c.seed, job.x, job.buffers, job.source, job.draw)

    def computed(self, i: int, job: Job | None) -> None:
        context = self._context
        w = context.workers[i]
        if job is None or w.job is not job:
            return  # cancelled, or its worker was lost
        w.job = None
        g = self._compute(job) if context.timing else self.pool.take(job)
        where = (job.x, job.version, job.source, job.draw)
        w.buffers = stamp(g, *where, started=job.started, computed=context.now, work=context.ledger.samples)
        w.samples += g.samples
        w.charge(job, context.now)
        if not g.loss <= context.loss_limit and self._suspicious(i, g):
            context.stopped = True
            context.ledger.note(context.now, i, g, context.serving.version, IN_FLIGHT)
            return
        context.advance(i, w, g)

    def _ready(self, i: int) -> None:
        """Its share of a core has brought a worker to its end."""
        self.computed(i, self._context.workers[i].job)

    def _suspicious(self, i: int, g: Gradient) -> bool:
        """The watcher sees the loss; True if that ends the run."""
        self._context.suspect = f"worker {i}, batch {g.draw}"
        return self._context.suspicious(g.loss)

    def drop(self, i: int, outcome: str) -> None:
        """The gradient that worker i computes, if it does, is given up."""
        context = self._context
        w = context.workers[i]
        if w.job is not None:
            job, w.job = w.job, None
            if self.cores is not None:
                self.cores.drop(i)
            self.pool.cancel(job)
            w.charge(job, context.now)
            self.note_unfinished(i, job, outcome)

    def note_unfinished(self, i: int, job: Any, outcome: str) -> None:
        c, batch = self._context, (job.source, job.draw)
        c.ledger.unfinished(c.now, i, batch, job.version, c.serving.version, job.started, outcome)

    # -- for a checkpoint ---------------------------------------------------------------------------------------

    def saved(self) -> dict[str, Any]:
        cores = None if self.cores is None else self.cores.saved()
        return {"fed": self._fed, "feeder": None if self.feeder is None else self.feeder.position, "cores": cores}

    def load(self, saved: dict[str, Any]) -> None:
        self._fed = saved["fed"]
        if self.feeder is not None:
            self.feeder.position = saved["feeder"]
        if self.cores is not None:
            self.cores.load(saved["cores"])


def split_schedule(cluster: Cluster) -> list[list[float]] | None:
    """A scripted schedule as finish times per worker."""
    if cluster.schedule is None:
        return None
    scripts: list[list[float]] = [[] for _ in range(cluster.workers)]
    for time, worker in cluster.schedule:
        scripts[worker].append(time)
    return scripts
