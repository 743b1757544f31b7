"""What staleness does to a gradient: for every N-th one that is applied, the fresh gradient of the same batch.

The fresh gradient is taken at the parameters that the stale one is about to change, on the same samples and with the
same randomness, off the clock. The run is not touched: its bits are the same with and without.
"""

from typing import Any

from torch import Tensor

from offbeat.core.effects import Applied
from offbeat.core.feed import Feed
from offbeat.core.task import Task
from offbeat.core.trace import staleness
from offbeat.engines.protocol import Engine
from offbeat.engines.running.gradients import compute


class Freshness:
    """Keeps one row a sampled gradient: cosine of stale and fresh, and the ratio of their norms."""

    def __init__(self, task: Task, feed: Feed, seed: int, every: int) -> None:
        self._task, self._feed, self._seed, self._every = task, feed, seed, every
        self._buffers = task.init(seed).buffers  # a BatchNorm in training does not look at its statistics
        self._seen = 0
        self.rows: list[dict[str, Any]] = []

    def watch(self, engine: Engine) -> None:
        stops = engine.show_applied(self.look)
        assert stops, "refused for other engines before they are made"
        self._engine = engine

    def look(self, effect: Applied) -> None:
        g = effect.gradient
        tau = staleness(effect.version, g.version)
        if effect.x is None or tau is None or g.parts or not isinstance(g.value, Tensor):
            return
        self._seen += 1
        if self._seen % self._every:
            return
        fresh = compute(self._task, self._feed, self._seed, effect.x, self._buffers, g.source, g.draw).value
        norms = float(g.value.norm()), float(fresh.norm())
        self.rows.append(
            {
                "time": self._engine.now,
                "worker": effect.worker,
                "version_applied": effect.version,
                "staleness": tau,
                "cosine": float(g.value @ fresh) / (norms[0] * norms[1]) if norms[0] and norms[1] else None,
                "norm_ratio": norms[0] / norms[1] if norms[1] else None,
            }
        )

    def state(self) -> dict[str, Any]:
        return {"seen": self._seen, "rows": self.rows}

    def load(self, saved: dict[str, Any]) -> None:
        self._seen, self.rows = saved["seen"], saved["rows"]
