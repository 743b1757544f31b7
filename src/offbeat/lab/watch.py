"""Who looks on while an engine runs: evaluates, saves, checkpoints, and decides when it is enough.

Nothing here changes the course of a run: a run watched closely and one not watched at all end with the same bits.
"""

import json
import time
from collections.abc import Callable, Iterable
from math import inf, isfinite
from typing import Any, Protocol

from offbeat.core.budget import HIGHER_IS_BETTER
from offbeat.core.errors import ConfigError, StoreError
from offbeat.core.task import Point
from offbeat.core.trace import APPLIED, REFUSED, Row
from offbeat.engines.engine import Engine
from offbeat.lab.folder import Folder, metrics_table
from offbeat.lab.fresh import Freshness
from offbeat.lab.plan import Plan

_EXPLODED = 100.0  # a loss so many times the first one is no spike any more


class Callback(Protocol):
    """What a user may hook in. Both methods are optional."""

    def on_apply(self, row: Row) -> None: ...

    def on_evaluation(self, metrics: dict[str, Any]) -> None: ...


class Tally:
    """Sums over the rows of the trace since some moment."""

    _FIELDS = ("rows", "applied", "samples", "loss", "correct", "classified", "norm", "normed", "staleness", "stale")

    def __init__(self) -> None:
        for name in self._FIELDS:
            setattr(self, name, 0)
        self.rows: int
        self.applied: int
        self.samples: int
        self.loss: float
        self.correct: int
        self.classified: int
        self.norm: float
        self.normed: int
        self.staleness: int
        self.stale: int
        self.max_staleness = 0

    def add(self, row: Row) -> None:
        self.rows += 1
        if row.applied and row.staleness is not None:
            self.staleness += row.staleness
            self.stale += 1
            self.max_staleness = max(self.max_staleness, row.staleness)
        if row.outcome not in (APPLIED, REFUSED):
            return
        self.samples += row.samples
        self.loss += (row.loss or 0.0) * row.samples
        if row.correct is not None:
            self.correct += row.correct
            self.classified += row.samples
        if row.grad_norm is not None:
            self.norm += row.grad_norm
            self.normed += 1
        if row.applied:
            self.applied += 1

    def state(self) -> dict[str, Any]:
        return dict(vars(self))

    def load(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)


def ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


class Watch:
    """Evaluation, early stopping, snapshots, checkpoints, divergence, progress."""

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
        self.plan, self.engine, self.folder = plan, engine, folder
        self._on_apply = [c.on_apply for c in callbacks if hasattr(c, "on_apply")]
        self._on_evaluation = [c.on_evaluation for c in callbacks if hasattr(c, "on_evaluation")]
        self._checkpoint_seconds, self._progress = checkpoint_seconds, progress
        self.why = ""
        self.diverged = False
        self.interrupted = False
        self.metrics: list[dict[str, Any]] = []
        self.best: Point | None = None
        self.best_value: float | None = None
        self.total, self._since = Tally(), Tally()
        self._seen = 0  # rows of engine.rows already counted
        self._lost = 0  # updates that went with a server
        self._note_sums()
        self._parts = 0
        self._saves = 0
        self._worse = 0
        self._first_loss: float | None = None
        per_epoch = plan.task.size
        amount = plan.budget.amount
        self._max_samples = plan.samples_budget if plan.budget.per == "global" else None
        self._max_updates = amount.count if amount is not None and amount.unit == "updates" else None
        every = plan.evaluate_every
        self._every_updates = every.count if every.unit == "updates" else None
        self._every_samples = every.samples(per_epoch) if every.unit != "updates" and per_epoch else None
        if every.unit == "samples":
            self._every_samples = every.count
        self._evaluations = 0  # number of the next mark
        self._save_samples = per_epoch / plan.saves_per_epoch if per_epoch and plan.saves_per_epoch else None
        self.fresh: Freshness | None = None
        if plan.diagnose_every is not None:
            self.fresh = Freshness(plan.task, plan.feed(), plan.seed, plan.diagnose_every)
            self.fresh.watch(engine)
        started = time.monotonic()
        self.wall_started = started
        self.wall_before = 0.0  # wall seconds of earlier sessions of this run
        self._next_checkpoint = started + checkpoint_seconds
        self._next_progress = started
        if amount is not None and amount.unit == "seconds":
            engine.deadline = amount.count
        self._set_marks()

    # -- what the engine calls ----------------------------------------------------------------------------------

    def start(self) -> None:
        """The initial point is evaluated and saved too."""
        self.evaluate()
        if self._save_samples is not None:
            self.save()

    def mark(self) -> bool:
        engine = self.engine
        samples, updates = engine.samples, engine.updates
        if self._save_samples is not None and samples >= self._saves * self._save_samples:
            self.save()
        stop = False
        if self._evaluation_due():
            self.evaluate()
            stop = self._enough()
        if samples >= (self._max_samples or inf) or updates >= (self._max_updates or inf):
            self.why, stop = f"budget of {self.plan.budget.amount} reached", True
        self._set_marks()
        return stop

    def tick(self) -> bool:
        if self._on_apply:
            self._count()
        if self.interrupted:
            self.why = "interrupted"
            return True
        now = time.monotonic()
        if now >= self._next_progress and self._progress is not None:
            self._progress(self)
            self._next_progress = now + 0.1
        if now >= self._next_checkpoint:
            self.checkpoint()
            self._next_checkpoint = time.monotonic() + self._checkpoint_seconds
        return False

    def suspicious(self, loss: float) -> bool:
        if self._first_loss is None:
            if not isfinite(loss):
                raise ConfigError(
                    f"the loss is {loss} at the initial parameters: check the model, the loss and the data "
                    "(nothing was trained)"
                )
            self._first_loss = loss
            self.engine.loss_limit = _EXPLODED * (abs(loss) + 1.0)
            return False
        self.diverged = True
        if self.plan.on_divergence == "continue":
            self.engine.loss_limit = inf
            return False
        self.why = f"the loss went from {self._first_loss:.4g} to {loss:.4g}"
        return True

    # -- evaluation ---------------------------------------------------------------------------------------------

    def evaluate(self) -> dict[str, Any]:
        """One row of metrics, off the clock, on the point as it is now."""
        self._count()
        engine, since, size = self.engine, self._since, self.plan.task.size
        point = engine.point
        held_out = self.plan.task.evaluate(point, engine.pool.map)
        row = {
            "time": engine.now,
            "updates": engine.updates,
            "samples": engine.samples,
            "epoch": engine.samples / size if size else None,
            "train_loss": ratio(since.loss, since.samples),
            "train_accuracy": ratio(since.correct, since.classified),
            "loss": held_out.get("loss"),
            "accuracy": held_out.get("accuracy"),
            "grad_norm": ratio(since.norm, since.normed),
            "weight_norm": float(point.x.norm()),
            "staleness": ratio(since.staleness, since.stale),
            "lr": engine.lr,
            "batch": self.plan.batch,
            "bytes": engine.bytes,
            **{k: v for k, v in held_out.items() if k not in ("loss", "accuracy")},
        }
        if row["loss"] is not None and not isfinite(row["loss"]) and engine.samples == 0:
            raise ConfigError(
                f"the held-out loss is {row['loss']} at the initial parameters: check the model, the loss and the data"
            )
        until = self.plan.budget.until
        if until is not None and row.get(until.metric) is None and engine.samples == 0:
            known = " and ".join(name for name in HIGHER_IS_BETTER if row.get(name) is not None) or "nothing"
            raise ConfigError(f"target {until} cannot be reached: task {self.plan.task.name!r} measures {known}")
        self._since = Tally()
        self.metrics.append(row)
        self._keep_best(row, point)
        for hook in self._on_evaluation:
            hook(row)
        return row

    @property
    def _criterion(self) -> str:
        return "accuracy" if self.metrics and self.metrics[0]["accuracy"] is not None else "loss"

    def _keep_best(self, row: dict[str, Any], point: Point) -> None:
        name = self._criterion
        value = row[name]
        if value is None or not isfinite(value):
            self._worse += 1
            return
        better = self.best_value is None or (
            value > self.best_value if HIGHER_IS_BETTER[name] else value < self.best_value
        )
        self._worse = 0 if better else self._worse + 1
        if better:
            self.best_value = value
            self.best = point if self.plan.keep_best else None

    def _enough(self) -> bool:
        until = self.plan.budget.until
        if until is not None and until.reached(self.metrics[-1].get(until.metric)):
            self.why = f"target {until} reached"
            return True
        if self.plan.patience is not None and self._worse >= self.plan.patience:
            self.why = f"no better {self._criterion} in {self._worse} evaluations"
            return True
        return False

    def _evaluation_due(self) -> bool:
        if self._every_updates is not None:
            return self.engine.updates >= self._evaluations * self._every_updates
        return self._every_samples is not None and self.engine.samples >= self._evaluations * self._every_samples

    def _set_marks(self) -> None:
        samples, updates = [self._max_samples], [self._max_updates]
        if self._every_updates is not None:
            self._evaluations = max(self._evaluations, int(self.engine.updates // self._every_updates) + 1)
            updates.append(self._evaluations * self._every_updates)
        elif self._every_samples is not None:
            self._evaluations = max(self._evaluations, int(self.engine.samples // self._every_samples) + 1)
            samples.append(self._evaluations * self._every_samples)
        if self._save_samples is not None:
            samples.append(self._saves * self._save_samples)
        self.engine.next_samples = min((s for s in samples if s is not None), default=inf)
        self.engine.next_updates = min((u for u in updates if u is not None), default=inf)

    def _note_sums(self) -> None:
        """What to go back to when the rows since now are lost."""
        self._sums = self.total.state(), self._since.state()

    def _count(self) -> None:
        """Takes note of the rows that the engine has added, or, with a server, lost again."""
        rows, lost = self.engine.rows, self.engine.lost_updates
        if lost != self._lost:
            self._lost, self._seen = lost, 0
            self.total.load(self._sums[0])
            self._since.load(self._sums[1])
        for values in rows[self._seen :]:
            row = Row._make(values)
            self.total.add(row)
            self._since.add(row)
            if row.applied:
                for hook in self._on_apply:
                    hook(row)
        self._seen = len(rows)

    # -- files --------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """A snapshot of the weights along the way, for landscapes."""
        if self.folder is not None:
            note = {"samples": self.engine.samples, "time": self.engine.now, "updates": self.engine.updates}
            name = f"saves/{self._saves:06d}.safetensors"
            self.folder.write_tensors(name, {"x": self.engine.point.x}, json.dumps(note))
        self._saves += 1

    def checkpoint(self) -> None:
        """Everything needed to go on from here. The rows so far go into a part of their own, before it."""
        if self.folder is None:
            return
        tensors: dict[str, Any] = {}
        tree = self.engine.save(tensors)
        self._count()
        self._note_sums()
        self.folder.write_part(self._parts, self.engine.rows, self.engine.journal)
        self._parts += 1
        self.engine.rows.clear()
        if self.engine.journal is not None:
            self.engine.journal.clear()
        self._seen = 0
        if self.best is not None:
            tensors["best"] = self.best.x
            tensors.update({f"best.{n}": b for n, b in (self.best.buffers or {}).items()})
        note = {"engine": tree, "watch": self._state()}
        self.folder.write_tensors("checkpoint.safetensors", tensors, json.dumps(note))
        self.folder.write_table("metrics.parquet", metrics_table(self.metrics))

    _KEPT = ("metrics", "best_value", "diverged", "_parts", "_saves", "_worse", "_evaluations", "_first_loss")

    def _state(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in self._KEPT}
        wall = self.wall_before + time.monotonic() - self.wall_started
        fresh = None if self.fresh is None else self.fresh.state()
        return {**kept, "total": self.total.state(), "since": self._since.state(), "wall": wall, "fresh": fresh}

    def restore(self, folder: Folder) -> None:
        """Goes on from the folder's checkpoint."""
        tensors, note = folder.read_tensors("checkpoint.safetensors")
        try:
            saved = note["watch"]
            for name in self._KEPT:
                setattr(self, name, saved[name])
            self.total.load(saved["total"])
            self._since.load(saved["since"])
            self.wall_before = saved["wall"]
            if self.fresh is not None:
                self.fresh.load(saved["fresh"])
            if "best" in tensors:
                buffers = {n.removeprefix("best."): t for n, t in tensors.items() if n.startswith("best.")}
                self.best = Point(tensors["best"], buffers or None)
            self.engine.restore(note["engine"], tensors)
            self._lost = self.engine.lost_updates
            self._note_sums()
        except (KeyError, TypeError, AttributeError, RuntimeError) as e:
            where = folder.path / "checkpoint.safetensors"
            raise StoreError(f"{where} is damaged or of another run: {str(e).splitlines()[0]}") from None
        folder.drop_parts(self._parts)
        self._set_marks()

    @property
    def parts(self) -> int:
        return self._parts

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

    def close_books(self) -> None:
        """After the engine's `finish`: its last rows."""
        self._count()
