"""The time to a target: of one run, the target that several share, and whose time a speed-up is against."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from offbeat.core.budget import Target
from offbeat.folders.run_files import RunFiles
from offbeat.report.groups import Group
from offbeat.report.numbers import known, number

_CLEAR, _SLIGHT = 0.1, 0.02
"""Clearly better than guessing: a tenth of the way from there to the best there is, and of a loss at least a 50th."""
_AT_FIRST = "was there at the start"


def time_to(run: RunFiles, target: Target) -> float | None:
    """Seconds of the run's own clock until the first evaluation that reaches the target."""
    table = run.metrics()
    if target.metric not in table.column_names:
        return None
    return target.time(table.select(["time", target.metric]).to_pylist())


def looked_for(run: RunFiles, target: Target) -> float | None:
    """Seconds until the last evaluation: a run that missed the target would have needed longer."""
    times = run.metric("time")[np.isfinite(run.metric(target.metric))]
    return float(times.max()) if len(times) else None


class Found(NamedTuple):
    """The target of several runs, whether somebody set it before the runs were seen, and why there is none."""

    target: Target | None
    given: bool
    why: str = ""


def find_target(groups: Sequence[Group], text: str | None) -> Found:
    """The target that was set; without one the runs' own where all have the same, else what every finished run reached.

    A target of the last kind lies clearly above what guessing gives: until there, times tell of luck and not of rules.
    """
    if text is not None:
        return Found(Target.parse(text), given=True)
    runs = [r for g in groups for r in g.runs]
    own = {str(r.summary.get("target") or "") for r in runs}
    if len(own) == 1 and (only := own.pop()):
        return Found(Target.parse(only), given=True)
    return _reached_by_all([r for r in runs if r.status == "done"])


def _reached_by_all(runs: Sequence[RunFiles]) -> Found:
    """The best accuracy that every run reached, else the best loss; rounded towards the worse, so that all reach it."""
    accuracies, losses = ([r.metric(metric) for r in runs] for metric in ("accuracy", "loss"))
    if _everywhere(accuracies):
        if stalled := sum(bool(r.summary.get("stalled")) for r in runs):  # what it was by luck, it did not reach
            return Found(None, False, f"There is no time to a target: none was set, and {_guess(stalled, len(runs))}.")
        reached = min(float(np.nanmax(v)) for v in accuracies)
        start = min(_first(v) for v in accuracies)
        chance = known([r.info.task.get("chance") for r in runs])
        guessed = max(chance) if chance else start
        if reached < guessed + _CLEAR * (1 - guessed):
            return Found(None, False, _near("accuracy", reached, guessed, "guessing gives" if chance else _AT_FIRST))
        value = float(Decimal(reached).quantize(Decimal("0.01"), ROUND_FLOOR))
        if value > start:
            return Found(Target("accuracy", value), given=False)
    if _everywhere(losses):
        each = [float(np.nanmin(v)) for v in losses]
        start = max(_first(v) for v in losses)
        if max(each) > start - max(_CLEAR * (start - min(each)), _SLIGHT * abs(start)):
            return Found(None, False, _near("loss", max(each), start, _AT_FIRST))
        value = float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(Decimal(max(each))))
        if value < start:
            return Found(Target("loss", value), given=False)
    return Found(None, False, "No target was set, and nothing that every finished run reached would do as one.")


def _near(metric: str, reached: float, guessed: float, what: str) -> str:
    """Why there is no target: what some run ended with is next to what is had for nothing."""
    return (
        f"There is no time to a target: none was set, and the best {metric} that every finished run reached, "
        f"{number(reached, 3)}, is not clearly better than the {number(guessed, 3)} that {what}."
    )


def _guess(stalled: int, runs: int) -> str:
    return f"{stalled} of {runs} finished runs {'is' if stalled == 1 else 'are'} no better than guessing"


def _everywhere(values: Sequence[NDArray[np.float64]]) -> bool:
    """Whether every run has a value."""
    return bool(values) and all(np.isfinite(v).any() for v in values)


def _first(values: NDArray[np.float64]) -> float:
    return float(values[np.isfinite(values)][0])


def reference(solvers: Sequence[str], times: Sequence[Sequence[float | None]]) -> int | None:
    """The row whose time speed-ups are against: plain SGD's where all of its seeds got there, else the first that did.

    Every table and every figure of speed-ups asks here. None where no row has a time for each of its seeds.
    """
    there = [i for i, row in enumerate(times) if row and all(row)]
    return next((i for i in there if solvers[i] == "plain"), there[0] if there else None)
