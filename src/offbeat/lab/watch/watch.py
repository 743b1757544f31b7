"""Who looks on while an engine runs: evaluates, saves, checkpoints, and decides when it is enough.

Nothing here changes the course of a run: a run watched closely and one not watched at all end with the same bits.
"""

import json
import time
from collections.abc import Callable, Iterable
from math import inf, isfinite
from typing import Any

from offbeat.core.errors import ConfigError, OffbeatError, StoreError
from offbeat.core.legible import legible
from offbeat.core.task import Point
from offbeat.engines.protocol import Engine
from offbeat.folders.tensor_files import read_tensors
from offbeat.lab.runs.folder import Folder, metrics_table
from offbeat.lab.runs.plan import Plan
from offbeat.lab.watch.best import Best
from offbeat.lab.watch.evaluation import check_first, measure
from offbeat.lab.watch.freshness import Freshness
from offbeat.lab.watch.hooks import guarded
from offbeat.lab.watch.marks import Marks
from offbeat.lab.watch.tally import Counted, Tally

_EXPLODED = 100.0  # a loss so many times the first one is no spike any more


class Watch:
    """Evaluation, early stopping, snapshots, checkpoints, divergence, progress.

    Args:
        plan: the run.
        engine: what runs it; its marks and limits are set here, and its rows are taken away when they are written.
        folder: where snapshots and checkpoints go; None: nowhere.
        callbacks: objects with `on_apply(row)`, `on_evaluation(metrics)` or both.
        checkpoint_seconds: wall time between two checkpoints.
        progress: called with this watch ten times a second.
    """

    def __init__(
        self,
        plan: Plan,
        engine: Engine,
        folder: Folder | None,
        *,
        callbacks: Iterable[Any] = (),
        checkpoint_seconds: float = 30.0,
        progress: Callable[["Watch"], None] | None = None,
    ) -> None:
        hooks = list(callbacks)
        self.plan, self.engine, self.folder = plan, engine, folder
        on_apply = [guarded(c.on_apply, engine.pool) for c in hooks if hasattr(c, "on_apply")]
        self._on_evaluation = [guarded(c.on_evaluation, engine.pool) for c in hooks if hasattr(c, "on_evaluation")]
        self._counts_at_once = bool(on_apply)
        self._checkpoint_seconds, self._progress = checkpoint_seconds, progress
        self.why = ""
        self.diverged = False
        self.interrupted = False
        self.begun = engine.clock == "wall"
        """Whether an interrupt finds something to save: a simulation has nothing before its first event."""
        self.metrics: list[dict[str, Any]] = []
        self.parts = 0
        """Pieces of the trace that are in files."""
        self._best = Best(plan.keep_best)
        self._counted = Counted(engine, on_apply)
        self._marks = Marks(plan, engine)
        self._first_loss: float | None = None
        self._randomness = "unknown"  # of the model, as an earlier session of this run has found it
        self.fresh: Freshness | None = None
        if plan.diagnose_every is not None:
            self.fresh = Freshness(plan.task, plan.feed(), plan.seed, plan.diagnose_every)
            self.fresh.watch(engine)
        self._started = time.monotonic()
        self._wall_before = 0.0  # wall seconds of earlier sessions of this run
        self._next_checkpoint = self._started + checkpoint_seconds
        self._next_progress = self._started

    # -- what the engine calls ----------------------------------------------------------------------------------

    def save_first(self) -> None:
        """The initial point is saved, too."""
        if self._marks.saving:
            self.save()

    def mark(self) -> bool:
        if self._marks.save_due:
            self.save()
        stop = False
        if self._marks.evaluation_due:
            self.evaluate()
            stop = self._enough()
        if self._marks.spent:
            self.why, stop = f"budget of {self.plan.budget.amount} reached", True
        self._marks.set()
        return stop

    def tick(self) -> bool:
        self.begun = True
        if self._counts_at_once:
            self._counted.count()
        if self.interrupted:
            self.why = "interrupted"
            return True
        self.show()
        if time.monotonic() >= self._next_checkpoint:
            self.checkpoint()
            self._next_checkpoint = time.monotonic() + self._checkpoint_seconds
        return False

    def suspicious(self, loss: float) -> bool:
        if self._first_loss is None:
            if not isfinite(loss):
                who = f" ({self.engine.suspect})" if self.engine.suspect else ""
                raise ConfigError(
                    f"the loss is {loss} at the initial parameters{who}: check the model, the loss and the data "
                    "(nothing was trained)"
                )
            self._first_loss = loss
            self.engine.loss_limit = _EXPLODED * (abs(loss) + 1.0)
            return False
        self.diverged = True
        if self.plan.on_divergence == "continue":
            self.engine.loss_limit = inf
            return False
        who = f" ({self.engine.suspect})" if self.engine.suspect else ""
        self.why = f"the loss went from {self._first_loss:.4g} to {loss:.4g}{who}"
        return True

    def show(self) -> None:
        now = time.monotonic()
        if now >= self._next_progress and self._progress is not None:
            self._progress(self)
            self._next_progress = now + 0.1

    # -- evaluation ---------------------------------------------------------------------------------------------

    def evaluate(self) -> dict[str, Any]:
        """One row of metrics, off the clock, on the point as it is now."""
        self._counted.count()
        row, point = measure(self.plan, self.engine, self._counted.since)
        if self.engine.samples == 0:
            check_first(self.plan, row)
        self._counted.begin_anew()
        self.metrics.append(row)
        self._best.see(row, point)
        for hook in self._on_evaluation:
            hook(row)
        return row

    def _enough(self) -> bool:
        until = self.plan.budget.until
        if until is not None and until.reached(self.metrics[-1].get(until.metric)):
            self.why = f"target {until} reached"
            return True
        worse = self._best.worse
        if self.plan.patience is not None and worse >= self.plan.patience:
            self.why = f"no better {self._best.criterion} in {worse} evaluations"
            return True
        return False

    # -- files --------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """A snapshot of the weights along the way, for landscapes."""
        if self.folder is not None:
            note = {"samples": self.engine.samples, "time": self.engine.now, "updates": self.engine.updates}
            name = f"saves/{self._marks.saves:06d}.safetensors"
            self.folder.write_tensors(name, {"x": self.engine.point.x}, json.dumps(note))
        self._marks.saves += 1

    def checkpoint(self) -> None:
        """Everything needed to go on from here. The rows so far go into a part of their own, before it."""
        if self.folder is None:
            return
        tensors: dict[str, Any] = {}
        tree = self.engine.save(tensors)
        self._counted.note()
        self.folder.write_part(self.parts, self.engine.rows, self.engine.journal)
        self.parts += 1
        self._counted.written()
        if (best := self._best.point) is not None:
            tensors["best"] = best.x
            tensors.update({f"best.{n}": b for n, b in (best.buffers or {}).items()})
        note = {"engine": tree, "watch": self._state()}
        self.folder.write_tensors("checkpoint.safetensors", tensors, json.dumps(note))
        self.folder.write_table("metrics.parquet", metrics_table(self.metrics))

    def _state(self) -> dict[str, Any]:
        return {
            "metrics": self.metrics,
            "best_value": self._best.value,
            "diverged": self.diverged,
            "_parts": self.parts,
            "_saves": self._marks.saves,
            "_worse": self._best.worse,
            "_evaluations": self._marks.evaluations,
            "_first_loss": self._first_loss,
            "randomness": self.about_task.get("randomness"),
            **self._counted.state(),
            "wall": self.wall_seconds,
            "fresh": None if self.fresh is None else self.fresh.state(),
        }

    def _load(self, saved: dict[str, Any]) -> None:
        self.metrics, self.diverged, self.parts = saved["metrics"], saved["diverged"], saved["_parts"]
        self._best.value, self._best.worse = saved["best_value"], saved["_worse"]
        self._best.decide_by(self.metrics[0])
        self._marks.saves, self._marks.evaluations = saved["_saves"], saved["_evaluations"]
        self._first_loss, self._wall_before = saved["_first_loss"], saved["wall"]
        self._randomness = saved.get("randomness") or "unknown"
        self._counted.load(saved)
        if self.fresh is not None:
            self.fresh.load(saved["fresh"])

    def restore(self, folder: Folder) -> None:
        """Goes on from the folder's checkpoint."""
        tensors, note = read_tensors(folder.path, "checkpoint.safetensors", dict[str, Any])
        try:
            self._load(note["watch"])
            if "best" in tensors:
                buffers = {n.removeprefix("best."): t for n, t in tensors.items() if n.startswith("best.")}
                self._best.point = Point(tensors["best"], buffers or None)
            self.engine.restore(note["engine"], tensors)
            self._counted.resumed()
        except OffbeatError:
            raise
        except Exception as e:  # whatever an engine stumbles over in a tree that is not its own
            where, said = folder.path / "checkpoint.safetensors", str(e) or type(e).__name__
            raise StoreError(f"{where} is damaged or of another run: {legible(said.splitlines()[0])}") from None
        folder.go_back(self.parts, self._marks.saves)
        self._marks.set()

    def close_books(self) -> None:
        """After the engine's `finish`: its last rows."""
        self._counted.count()

    # -- what others ask ----------------------------------------------------------------------------------------

    @property
    def about_task(self) -> dict[str, Any]:
        """What the task says of itself, with what was found out of it on the way, be it in an earlier session."""
        about = dict(self.plan.task.describe())
        return {**about, "randomness": self._randomness} if about.get("randomness") == "unknown" else about

    @property
    def total(self) -> Tally:
        """Over all rows so far."""
        return self._counted.total

    @property
    def best(self) -> Point | None:
        """The best parameters seen, if they are kept."""
        return self._best.point

    @property
    def best_value(self) -> float | None:
        return self._best.value

    @property
    def wall_seconds(self) -> float:
        """Over all sessions of this run."""
        return self._wall_before + time.monotonic() - self._started

    @property
    def share(self) -> float:
        """How much of the budget is used, from 0 to 1; a target may end the run earlier."""
        engine, amount = self.engine, self.plan.budget.amount
        if amount is None:
            return 0.0
        if amount.unit == "seconds":
            return min(1.0, engine.now / amount.count)
        if amount.unit == "updates":
            return min(1.0, engine.updates / amount.count)
        return min(1.0, engine.samples / (self.plan.samples_budget or 1.0))
