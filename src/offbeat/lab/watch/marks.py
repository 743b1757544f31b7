"""The marks at which an engine calls its watcher: evaluations, snapshots, and the end of the budget."""

from math import inf

from offbeat.engines.protocol import Engine
from offbeat.lab.runs.plan import Plan


class Marks:
    """When the next evaluation and the next snapshot are due, in samples or updates, and when it is enough."""

    def __init__(self, plan: Plan, engine: Engine) -> None:
        self._engine = engine
        size, amount, every = plan.task.size, plan.budget.amount, plan.evaluate_every
        self._max_samples = plan.samples_budget if plan.budget.per == "global" else None
        self._max_updates = amount.count if amount is not None and amount.unit == "updates" else None
        self._every_updates = every.count if every.unit == "updates" else None
        self._every_samples = None
        if every.unit == "samples" or (every.unit == "epochs" and size):
            self._every_samples = every.samples(size)
        self._save_samples = size / plan.saves_per_epoch if size and plan.saves_per_epoch else None
        self.evaluations = 0  # number of the next mark
        self.saves = 0  # snapshots so far
        if amount is not None and amount.unit == "seconds":
            engine.deadline = amount.count
        self.set()

    @property
    def saving(self) -> bool:
        return self._save_samples is not None

    @property
    def save_due(self) -> bool:
        return self._save_samples is not None and self._engine.samples >= self.saves * self._save_samples

    @property
    def evaluation_due(self) -> bool:
        if self._every_updates is not None:
            return self._engine.updates >= self.evaluations * self._every_updates
        return self._every_samples is not None and self._engine.samples >= self.evaluations * self._every_samples

    @property
    def spent(self) -> bool:
        """Whether the budget in samples or updates is used."""
        samples, updates = self._engine.samples, self._engine.updates
        return samples >= (self._max_samples or inf) or updates >= (self._max_updates or inf)

    def set(self) -> None:
        """Tells the engine when to call next."""
        samples, updates = [self._max_samples], [self._max_updates]
        if self._every_updates is not None:
            self.evaluations = max(self.evaluations, int(self._engine.updates // self._every_updates) + 1)
            updates.append(self.evaluations * self._every_updates)
        elif self._every_samples is not None:
            self.evaluations = max(self.evaluations, int(self._engine.samples // self._every_samples) + 1)
            samples.append(self.evaluations * self._every_samples)
        if self._save_samples is not None:
            samples.append(self.saves * self._save_samples)
        self._engine.next_samples = min((s for s in samples if s is not None), default=inf)
        self._engine.next_updates = min((u for u in updates if u is not None), default=inf)
