"""What a person sees at the end of a command: facts, verdicts, tables. What is shown on the way is `progress.py`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from offbeat.core.legible import legible
from offbeat.core.units import counted
from offbeat.progress import clock
from offbeat.progress import console as console

if TYPE_CHECKING:
    from offbeat.lab.studies.compare import Line, Spread


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
        out.print(plain_text(sentence), soft_wrap=not out.is_terminal)  # a line in a pipe is one line
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
