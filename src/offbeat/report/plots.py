"""`run.plot.loss()` and its siblings: the figures of one run, by name."""

from offbeat.core.errors import ConfigError, unknown
from offbeat.report import classes, curves, spacetime, staleness, workers
from offbeat.report.figure import Chart, Figure
from offbeat.report.groups import group
from offbeat.report.read import RunFiles


class Plots:
    """Each method returns a figure, which shows itself in a notebook and saves itself with `save("x.svg")`."""

    def __init__(self, run: RunFiles) -> None:
        self._run = run
        (self._group,) = group([run])

    def loss(self, against: str | None = None) -> Figure:
        """Held-out and training loss against "samples", "updates", "epochs" or time."""
        return self._curve("loss", against, "train_loss")

    def accuracy(self, against: str | None = None) -> Figure:
        """Held-out and training accuracy."""
        return self._curve("accuracy", against, "train_accuracy")

    def metric(self, name: str, against: str | None = None) -> Figure:
        """Any column of the metrics."""
        return self._curve(name, against, None)

    def staleness(self) -> Figure:
        """The histogram, with normal fit and theoretical mean."""
        return self._only(staleness.histogram_chart(self._group), "staleness")

    def gap(self) -> Figure:
        """|x now - x read| over time."""
        found = staleness.over_time(self._run, "gap", "gap ‖x now − x read‖", self._group.colour)
        if found is None:
            raise ConfigError("this run has no gap: run with record.gap=true")
        return found

    def timeline(self) -> Figure:
        """What each worker did when."""
        return self._only(workers.timeline(self._run), "trace")

    def spacetime(self, first: int = spacetime.SHORT) -> Figure:
        """Who computed, sent and applied the first gradients."""
        if not self._run.trace().num_rows:
            raise ConfigError("this run has no trace")
        return spacetime.figure(self._run, first)

    def updates(self) -> Figure:
        """Applied gradients of each worker over time."""
        return self._only(workers.updates(self._run), "trace")

    def breakdown(self) -> Figure:
        """Where each worker's time went."""
        return self._only(workers.breakdown(self._run), "time breakdown")

    def confusion(self) -> Figure:
        """Which classes were taken for which."""
        return self._only(classes.confusion(self._run), "evaluation by class")

    def partition(self) -> Figure:
        """How many samples of each class each worker can draw."""
        return self._only(classes.partition(self._run), "partition by class")

    def _curve(self, metric: str, against: str | None, train: str | None) -> Figure:
        chart = curves.chart([self._group], metric, train=train, first=f"{self._run.clock} time")
        if chart is None:
            raise ConfigError(f"this run has no {metric!r} in its metrics")
        if against is None:
            return next(iter(chart.views.values()))
        name = self._run.time_label if against == "time" else against
        if name not in chart.views:
            raise unknown("axis", against, chart.views)
        return chart.views[name]

    @staticmethod
    def _only(chart: Chart | None, what: str) -> Figure:
        if chart is None:
            raise ConfigError(f"this run has no {what}")
        return next(iter(chart.views.values()))
