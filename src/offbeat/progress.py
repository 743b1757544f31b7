"""What is shown while something runs: rates and time left, on a terminal, in a notebook, as plain lines in a pipe."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from importlib import import_module
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from offbeat.core.legible import legible
from offbeat.core.units import format_duration

_PLAIN_EVERY = 5.0
_REDRAWN_EVERY = 0.2
"""A notebook is told anew after so many seconds; more would keep it busy."""
Show = Callable[[float, str], None]
"""How much is done, from 0 to 1, and what else there is to say."""


class Watched(Protocol):
    """A run on its way, as far as it is shown."""

    engine: Any
    plan: Any
    metrics: list[dict[str, Any]]

    @property
    def share(self) -> float: ...


class ShownRun(Protocol):
    """One run of many, as far as it is shown."""

    share: float
    outcome: dict[str, Any] | None


def console(*, stderr: bool = False) -> Console:
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = 160  # a pipe has no width, and a table should not be folded for it
    return made


def in_notebook() -> bool:
    """Whether somebody looks on in a notebook, and not in a shell of IPython."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def watched() -> bool:
    """Whether anybody sees progress: in a notebook, or on a terminal."""
    return in_notebook() or console(stderr=True).is_terminal


@contextmanager
def run_progress(label: str, *, quiet: bool = False) -> Iterator[Callable[[Watched], None] | None]:
    """Progress of one run: samples a second, its clock, time left."""
    if quiet:
        yield None
        return
    first: list[tuple[float, int]] = []  # when computing began, and at how much: a resumed run has some already

    def note(watch: Watched) -> str:
        engine = watch.engine
        if not first:
            first.append((time.monotonic(), engine.samples))
        done = engine.samples - first[0][1]
        unit = getattr(watch.plan.task, "unit", "samples")
        rate = f"{done / max(time.monotonic() - first[0][0], 1e-9):,.0f} {unit}/s  " if done else ""
        last = watch.metrics[-1] if watch.metrics else {}
        shown = "accuracy" if last.get("accuracy") is not None else "loss"
        value = last.get(shown)
        score = "" if value is None else f"  {shown} {value:.4g}"
        waiting = f"  {engine.waiting}" if engine.waiting else ""
        return f"{rate}{engine.clock} {clock(engine.now)}{score}{waiting}"

    with _shown(label) as show:
        yield lambda watch: show(watch.share, note(watch))


@contextmanager
def cells_progress(label: str, cells: Sequence[ShownRun], *, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Progress over all cells of a sweep or comparison."""
    if quiet:
        yield lambda: None
        return

    def note() -> str:
        done = sum(c.outcome is not None for c in cells)
        bad = sum(c.outcome is not None and c.outcome["status"] not in ("done", "interrupted") for c in cells)
        return f"{done}/{len(cells)} runs" + (f", {bad} not done well" if bad else "")

    with _shown(label) as show:

        def update() -> None:
            show(sum(c.share for c in cells) / len(cells), note())

        update()  # processes take a moment to start
        yield update


@contextmanager
def time_progress(
    label: str, count: float, unit: str, *, quiet: bool = False
) -> Iterator[Callable[[int, float], None]]:
    """Progress of the clock alone, over so many updates or seconds; most are over before it shows."""
    if quiet or not watched():
        yield lambda updates, now: None
        return
    with _shown(label) as show:

        def update(updates: int, now: float) -> None:
            show((updates if unit == "updates" else now) / count, f"{updates:,} updates  virtual {clock(now)}")

        yield update


@contextmanager
def scaling_progress(count: int, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Progress over so many simulations of the clock alone, each told by its name when it begins."""
    if quiet or not watched():
        yield lambda name: None
        return
    with _shown("timing") as show:
        begun = 0

        def begin(name: str) -> None:
            nonlocal begun
            show(min(1.0, begun / count), name)
            begun += 1

        yield begin


@contextmanager
def _shown(label: str) -> Iterator[Show]:
    """The one way to show it that suits where we are."""
    label = legible(label)
    err = console(stderr=True)
    if in_notebook():
        with _in_a_notebook(label) as show:
            yield show
    elif err.is_terminal:
        with _on_a_terminal(label, err) as show:
            yield show
    else:
        yield _in_lines(label)


@contextmanager
def _on_a_terminal(label: str, err: Console) -> Iterator[Show]:
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeRemainingColumn(compact=True, table_column=Column(min_width=5, no_wrap=True)),
        console=err,
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=1.0, note="")
        yield lambda share, note: bar.update(task, completed=share, note=note)


def _in_lines(label: str) -> Show:
    last, left = time.monotonic(), _TimeLeft()

    def line(share: float, note: str) -> None:
        nonlocal last
        said = left(share)
        if time.monotonic() - last >= _PLAIN_EVERY:
            last = time.monotonic()
            print(f"{label} {share:4.0%}  {note}{said}", file=sys.stderr, flush=True)

    return line


@contextmanager
def _in_a_notebook(label: str) -> Iterator[Show]:
    """One line below the cell, written anew; it is gone when all is done."""
    shown = import_module("IPython.display")  # whoever is in a notebook has it
    handle = shown.display(shown.HTML(""), display_id=True)
    last, left = -_REDRAWN_EVERY, _TimeLeft()

    def show(share: float, note: str) -> None:
        nonlocal last
        said = left(share)
        if time.monotonic() - last >= _REDRAWN_EVERY:
            last = time.monotonic()
            bar = f'<progress value="{share:.3f}" max="1" style="width:12em"></progress>'
            text = escape(f"{share:.0%}  {note}{said}")
            handle.update(shown.HTML(f"<code>{escape(label)} </code>{bar}<code> {text}</code>"))

    try:
        yield show
    finally:
        handle.update(shown.HTML(""))


class _TimeLeft:
    """By what was gained since the first call: a resumed run has some already."""

    def __init__(self) -> None:
        self._began: tuple[float, float] | None = None

    def __call__(self, share: float) -> str:
        if self._began is None:
            self._began = time.monotonic(), share
        began, at_first = self._began
        gained = share - at_first
        return f"  {clock((time.monotonic() - began) * (1 - share) / gained)} left" if gained > 0 else ""


def clock(seconds: float) -> str:
    """A duration for reading: three digits and a unit."""
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return format_duration(seconds) if seconds == 0 else f"{seconds:.3g} s"
