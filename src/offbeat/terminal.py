"""What a person sees: progress with rates and time left on a terminal, plain lines when piped, tables at the end."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from offbeat.core.legible import legible
from offbeat.core.units import counted, format_duration

if TYPE_CHECKING:
    from offbeat.core.budget import Amount
    from offbeat.lab.studies.cells import Cell
    from offbeat.lab.studies.compare import Line, Spread
    from offbeat.lab.watch import Watch

_PLAIN_EVERY = 5.0


def console(*, stderr: bool = False) -> Console:
    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal:
        made.width = 160  # a pipe has no width, and a table should not be folded for it
    return made


def _bar(err: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(compact=True, table_column=Column(min_width=5, no_wrap=True)),
        console=err,
        transient=True,
    )


@contextmanager
def run_progress(label: str, *, quiet: bool = False) -> Iterator["Callable[[Watch], None] | None"]:
    """Progress of one run, on stderr: samples/s, the virtual clock, time left."""
    if quiet:
        yield None
        return
    err = console(stderr=True)
    first: list[tuple[float, int, float]] = []  # when computing began, and at how much: a resumed run has some already

    def seen(watch: "Watch") -> None:
        if not first:
            first.append((time.monotonic(), watch.engine.samples, watch.share))

    def note(watch: "Watch") -> str:
        engine = watch.engine
        done = engine.samples - first[0][1]
        unit = getattr(watch.plan.task, "unit", "samples")
        rate = f"{done / max(time.monotonic() - first[0][0], 1e-9):,.0f} {unit}/s  " if done else ""
        last = watch.metrics[-1] if watch.metrics else {}
        shown = "accuracy" if last.get("accuracy") is not None else "loss"
        value = last.get(shown)
        score = "" if value is None else f"  {shown} {value:.4g}"
        waiting = f"  {engine.waiting}" if engine.waiting else ""
        return f"{rate}{engine.clock} {clock(engine.now)}{score}{waiting}"

    if not err.is_terminal:
        last_line = time.monotonic()

        def line(watch: "Watch") -> None:
            nonlocal last_line
            seen(watch)
            if (now := time.monotonic()) - last_line >= _PLAIN_EVERY:
                last_line = now
                began, _, share = first[0]
                gained = watch.share - share
                left = f"  {clock((now - began) * (1 - watch.share) / gained)} left" if gained > 0 else ""
                print(f"{label} {watch.share:4.0%}  {note(watch)}{left}", file=sys.stderr, flush=True)

        yield line
        return
    with _bar(err) as bar:
        task = bar.add_task(escape(legible(label)), total=1.0, note="")

        def update(watch: "Watch") -> None:
            seen(watch)
            bar.update(task, completed=watch.share, note=note(watch))

        yield update


@contextmanager
def cells_progress(label: str, cells: "Sequence[Cell]", *, quiet: bool = False) -> Iterator[Callable[[], None]]:
    """Progress over all cells of a sweep or comparison."""
    err = console(stderr=True)
    if quiet:
        yield lambda: None
        return

    def note() -> str:
        done = sum(c.outcome is not None for c in cells)
        bad = sum(c.outcome is not None and c.outcome["status"] not in ("done", "interrupted") for c in cells)
        return f"{done}/{len(cells)} runs" + (f", {bad} not done well" if bad else "")

    if not err.is_terminal:
        last = [time.monotonic()]

        def line() -> None:
            if time.monotonic() - last[0] >= _PLAIN_EVERY:
                last[0] = time.monotonic()
                print(f"{label} {sum(c.share for c in cells) / len(cells):4.0%}  {note()}", file=sys.stderr, flush=True)

        yield line
        return
    with _bar(err) as bar:
        task = bar.add_task(label, total=float(len(cells)), note="")
        yield lambda: bar.update(task, completed=sum(c.share for c in cells), note=note())


@contextmanager
def time_progress(label: str, amount: "Amount", *, quiet: bool = False) -> Iterator[Callable[[int, float], None]]:
    """Progress of a timing-only simulation; most are over before it shows."""
    err = console(stderr=True)
    if quiet or not err.is_terminal:
        yield lambda updates, now: None
        return
    with _bar(err) as bar:
        task = bar.add_task(label, total=amount.count, note="")

        def update(updates: int, now: float) -> None:
            done = updates if amount.unit == "updates" else now
            bar.update(task, completed=done, note=f"{updates:,} updates  virtual {clock(now)}")

        yield update


def clock(seconds: float) -> str:
    """A duration for reading: three digits and a unit."""
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return format_duration(seconds) if seconds == 0 else f"{seconds:.3g} s"


def show_summary(out: Console, summary: dict[str, Any]) -> None:
    """A finished run, for a person."""
    grid = Table.grid(padding=(0, 2))
    for name, value in _facts(summary):
        grid.add_row(Text(name, style="dim"), plain_text(value) if isinstance(value, str) else value)
    out.print(grid)


def plain_text(text: object, style: str = "") -> Text:
    """As it is: no markup in it means anything, and no control character gets through."""
    return Text(legible(text), style=style)


def _facts(s: dict[str, Any]) -> Iterator[tuple[str, str | Text]]:
    colour = {"done": "green", "diverged": "red", "failed": "red"}.get(s["status"], "yellow")
    yield "status", Text.assemble(plain_text(s["status"], colour), "  ", plain_text(s.get("why", "")))
    yield (
        "run",
        f"{s['task']} / {s['solver']} / {counted(s['workers'], 'worker')} / batch {s['batch']} / seed {s['seed']}",
    )
    if s.get("accuracy") is not None:
        best = f"{s['accuracy']:.4f}  (best {s['best']:.4f})" if s.get("best") is not None else "-"
        stalled = Text("  stalled: no better than chance", style="yellow") if s.get("stalled") else ""
        yield "accuracy", Text.assemble(best, stalled)
    if s.get("loss") is not None:
        yield "loss", f"{s['loss']:.4g}"
    if s.get("target"):
        reached, which = s.get("time_to_target"), "" if s["virtual_seconds"] is None else " (virtual)"
        yield "target", f"{s['target']} " + ("missed" if reached is None else f"after {clock(reached)}{which}")
    yield "work", f"{s['updates']:,} updates, {s['samples']:,} samples"
    if s.get("mean_staleness") is not None:
        yield "staleness", f"mean {s['mean_staleness']:.2f}, max {s.get('max_staleness')}"
    if s.get("lost_share"):
        yield "lost", f"{s['lost_share']:.1%} of what was added to the shared vector"
    times = {which: s.get(f"{which}_seconds") for which in ("virtual", "wall")}
    yield "time", ", ".join(f"{clock(value)} {which}" for which, value in times.items() if value is not None)
    shares = [("computing", "computing_share"), ("delayed", "delayed_share")]
    shares += [("communicating", "communicating_share"), ("waiting", "idle_share")]
    yield "workers", ", ".join(f"{n} {s[k]:.0%}" for n, k in shares if s.get(k))
    for incident in s.get("incidents") or ():
        yield "incident", plain_text(incident, "yellow")
    if s.get("run"):
        yield "folder", str(s["run"])


def show_timing(out: Console, s: dict[str, Any]) -> None:
    """What a timing-only simulation found, for a person."""
    grid = Table.grid(padding=(0, 2))
    facts = [
        ("run", f"{s['solver']} / {counted(s['workers'], 'worker')}"),
        ("work", f"{s['updates']:,} updates in {clock(s['virtual_seconds'])} (virtual)"),
    ]
    if s["updates_per_virtual_second"] is not None:
        rates = f"{s['samples_per_virtual_second']:,.4g} samples, {s['updates_per_virtual_second']:,.4g} updates"
        facts.append(("throughput", f"{rates} a virtual second"))
    if s["mean_staleness"] is not None:
        shown = f"mean {s['mean_staleness']:.2f}, median {s['median_staleness']:g}, 95 % {s['p95_staleness']:g}"
        facts.append(("staleness", f"{shown}, max {s['max_staleness']}"))
    shares = [("computing", "computing_share"), ("delayed", "delayed_share")]
    shares += [("communicating", "communicating_share"), ("waiting", "idle_share")]
    facts.append(("workers", ", ".join(f"{n} {s[k]:.1%}" for n, k in shares if s.get(k))))
    if s["server_busy_share"]:
        facts.append(("server", f"busy {s['server_busy_share']:.1%}, {s['mean_queue_length']:.3g} waiting in the mean"))
    rate = f", {s['updates_per_wall_second']:,.0f} updates/s" if s["updates_per_wall_second"] else ""
    facts.append(("wall", f"{clock(s['wall_seconds'])}{rate} ({s['loop']} loop)"))
    for name, value in facts:
        grid.add_row(Text(name, style="dim"), plain_text(value))
    out.print(grid)


def show_timings(out: Console, found: "Sequence[dict[str, Any]]") -> None:
    """Several rules on one cluster: samples a second compare them, updates a second do not."""
    table = Table(box=None, pad_edge=False)
    for name in ("solver", "samples/s", "updates/s", "staleness", "computing", "waiting"):
        table.add_column(name, justify="left" if name == "solver" else "right")
    for s in found:
        rates = [s["samples_per_virtual_second"], s["updates_per_virtual_second"], s["mean_staleness"]]
        row = ["-" if v is None else f"{v:,.4g}" for v in rates]
        row += ["-" if v is None else f"{v:.1%}" for v in (s["computing_share"], s["idle_share"])]
        table.add_row(plain_text(s["solver"]), *row)
    out.print(table)
    out.print("Virtual seconds. A sample is one gradient here; an update is of one gradient or of many.", style="dim")


def show_best(out: Console, score: str, best: "Sequence[dict[str, Any]]") -> None:
    """The best points of a sweep, best first."""
    for n, row in enumerate(best):
        point = "  ".join(f"{k}={v}" for k, v in row.items() if k != score)
        out.print(plain_text(f"{'best  ' if n == 0 else '      '} {score} {row[score]:.4g}  {point}"))


def show_verdict(out: Console, sentences: "Sequence[str]") -> None:
    """What a comparison found, in words. Names are shown as they are."""
    for sentence in sentences:
        out.print(plain_text(sentence))
    if sentences:
        out.print()


def show_comparison(out: Console, lines: "Sequence[Line]", target: str | None) -> None:
    """The table of a comparison. Times are those of its engine's clock."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("solver")
    score = "accuracy" if any(line.accuracy.mean is not None for line in lines) else "loss"
    form = "{:.3f}" if score == "accuracy" else "{:.3g}"
    over = lines[0].over
    names = ["workers", score, f"time to {target}" if target else f"{lines[0].clock} time"]
    names += [f"speed-up over {over}"] if over else []
    for name in [*names, "staleness", "waiting"]:
        table.add_column(plain_text(name), justify="right")
    if any(set(line.statuses) != {"done"} for line in lines):
        table.add_column("status")
    for line in lines:
        time_shown = line.time_to_target if target else line.seconds
        missed = line.seeds - time_shown.count
        cells = [
            line.solver,
            str(line.workers),
            _spread(line.accuracy if score == "accuracy" else line.loss, form),
            _spread(time_shown, "{:.3g}", " s") + (f" ({missed} missed)" if missed and target else ""),
        ]
        cells += ["-" if line.speed_up is None else f"{line.speed_up:.2f}x"] if over else []
        cells += [_spread(line.staleness, "{:.2f}"), "-" if line.idle.mean is None else f"{line.idle.mean:.0%}"]
        if len(table.columns) > len(cells):
            cells.append(", ".join(f"{n} {s}" for s, n in line.statuses.items()))
        table.add_row(*map(plain_text, cells))
    out.print(table)


def _spread(value: "Spread", form: str, unit: str = "") -> str:
    if value.mean is None:
        return "-"
    spread = f" ± {form.format(value.std)}" if value.count > 1 else ""
    return form.format(value.mean) + spread + unit
