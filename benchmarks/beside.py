"""Rows measured in turn, each beside a base that runs just before and after it: ratios that a drift of the machine hits
on both sides. Used by `local.py` and `cluster.py`.
"""

import statistics
import sys
from collections.abc import Callable, Mapping

import numpy as np

Measure = Callable[[], float]


Values = dict[str, list[float]]


def ratios(base: Measure, rows: Mapping[str, Measure], repeats: int) -> tuple[Values, Values]:
    """What each row measured, and its ratios to the mean of the base before and after it."""
    found: dict[str, list[float]] = {name: [] for name in rows}
    against: dict[str, list[float]] = {name: [] for name in rows}
    before = base()
    for k in range(repeats):
        for name, measure in rows.items():
            found[name].append(measure())
            after = base()
            against[name].append(2 * found[name][-1] / (before + after))
            before = after
            say(f"{k + 1}/{repeats}  {name}: {found[name][-1]:.0f} samples/s, {against[name][-1]:.2f}")
    return found, against


def table(found: Mapping[str, list[float]], against: Mapping[str, list[float]], bounds: Mapping[str, float]) -> bool:
    """Prints median and middle half of every row; True if one is below its bound."""
    missed = False
    for name, values in against.items():
        low, ratio, high = np.quantile(values, (0.25, 0.5, 0.75))
        short = bool(ratio < bounds.get(name, 0.0))
        missed |= short
        note = f"   bound {bounds[name]}{': MISSED' if short else ''}" if name in bounds else ""
        print(f"  {name:30} {ratio:.2f}   {low:.2f} - {high:.2f}   ({statistics.median(found[name]):.0f}/s){note}")
    return missed


def say(text: str) -> None:
    """Progress, beside the table."""
    print(text, file=sys.stderr, flush=True)
