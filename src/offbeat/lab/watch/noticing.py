"""What somebody should hear while a run goes on, and not only read in its folder."""

from collections.abc import Callable
from typing import Any

from offbeat.core.task import Task
from offbeat.lab.watch.watch import Watch

UNKEYED = (
    "one gradient at a time: the model draws random numbers that cannot be keyed to a batch (from numpy or random, or "
    "inside a function such as scaled_dot_product_attention or an LSTM with dropout), so that side by side they would "
    "depend on the order of threads; with nn.Dropout, torch.rand and their like gradients run on all cores"
)


class Noticing:
    """Looks on with the progress of a run, and says what is to be said once.

    Args:
        say: told each sentence.
        progress: told of the run as well; None: nobody is.
    """

    def __init__(self, say: Callable[[str], None], progress: Callable[[Watch], None] | None = None) -> None:
        self._say, self._progress, self._said = say, progress, False

    def __call__(self, watch: Watch) -> None:
        self.look(watch.plan.task)
        if self._progress is not None:
            self._progress(watch)

    def look(self, task: Task | Any) -> None:
        """Says it if there is something, and it was not said yet."""
        if not self._said and getattr(task, "randomness", "none") == "global":
            self._said = True
            self._say(UNKEYED)
