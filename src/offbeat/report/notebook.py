"""`run.plot.loss()` and its siblings: the figures of one run, by name, for a notebook."""

from collections.abc import Callable

from offbeat.core.errors import ConfigError, unknown
from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.figure import Figure
from offbeat.report.figures import curves
from offbeat.report.figures.gallery import View, charts, figures_of_one
from offbeat.report.figures.spacetime import SHORT
from offbeat.report.figures.spacetime import figure as spacetime_figure
from offbeat.report.groups import group


class Plots:
    """Each method returns a figure, which shows itself in a notebook and saves itself with `save("x.svg")`.

    Besides the methods below, every figure of the page of one run is here by its name, without arguments: staleness,
    gap, timeline, updates, breakdown, confusion, partition and whatever else `dir(run.plot)` lists.
    """

    def __init__(self, run: RunFiles) -> None:
        self._view = View(group([run]))

    def loss(self, against: str | None = None) -> Figure:
        """Held-out and training loss against "samples", "updates", "epochs" or "time" (default: time)."""
        return self._curve("loss", against, "train_loss")

    def accuracy(self, against: str | None = None) -> Figure:
        """Held-out and training accuracy, as `loss`."""
        return self._curve("accuracy", against, "train_accuracy")

    def metric(self, name: str, against: str | None = None) -> Figure:
        """Any column of the metrics, as `loss`."""
        return self._curve(name, against, None)

    def spacetime(self, first: int = SHORT) -> Figure:
        """Who computed, sent and applied the first gradients, so many of them (default: 150)."""
        if not self._view.run.trace().num_rows:
            raise ConfigError("this run has no trace")
        return spacetime_figure(self._view.run, first)

    def __getattr__(self, name: str) -> Callable[[], Figure]:
        entry = figures_of_one().get(name)
        if entry is None:
            raise AttributeError(f"there is no figure {name!r}; there are: {', '.join(self.__dir__())}")

        def draw() -> Figure:
            found = charts({name: entry}, entry.section, self._view)
            if not found:
                raise ConfigError(f"this run has no {entry.needs}")
            return next(iter(found[0].views.values()))

        draw.__name__, draw.__doc__ = name, entry.draw.__doc__
        return draw

    def __dir__(self) -> list[str]:
        return sorted({*figures_of_one(), "loss", "accuracy", "metric", "spacetime"})

    def _curve(self, metric: str, against: str | None, train: str | None) -> Figure:
        run = self._view.run
        chart = curves.chart([self._view.group], metric, train=train, first=run.time_label)
        if chart is None:
            raise ConfigError(f"this run has no {metric!r} in its metrics")
        if against is None:
            return next(iter(chart.views.values()))
        name = run.time_label if against == "time" else against
        if name not in chart.views:
            raise unknown("axis", against, chart.views)
        return chart.views[name]
