"""What a person sees at the end of a command: facts, verdicts, tables. What is shown on the way is `progress.py`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from offbeat.core.legible import legible
from offbeat.core.units import counted
from offbeat.progress import clock
from offbeat.progress import console as console

if TYPE_CHECKING:
    from offbeat.lab.studies.compare import SolverLine, Spread
    from offbeat.report.tables import Table as Written


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
    from offbeat.lab.studies.timings import COLUMNS, WHAT_COUNTS, legible_row

    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name == "solver" else "right")
    for summary in found:
        table.add_row(*map(plain_text, legible_row(summary)))
    out.print(table)
    out.print(WHAT_COUNTS, style="dim")


def show_scaling(out: Console, rows: "Sequence[Mapping[str, Any]]") -> None:
    """Samples a virtual second of each rule, and what they are of the ideal, by the number of workers."""
    names = list(dict.fromkeys(row["solver"] for row in rows))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("workers", *names, "ideal"):
        table.add_column(plain_text(name), justify="right")
    by_count: dict[int, dict[str, Any]] = {}
    for row in rows:
        share = "" if row["efficiency"] is None else f" {row['efficiency']:4.0%}"
        cells = by_count.setdefault(row["workers"], {"ideal": f"{row['ideal']:,.4g}"})
        cells[row["solver"]] = f"{row['samples_per_virtual_second']:,.4g}{share}"
    for count, cells in by_count.items():
        table.add_row(f"{count:,}", *(plain_text(cells[name]) for name in (*names, "ideal")))
    out.print(table)
    out.print("Samples a virtual second, and their share of the ideal: workers that only compute.", style="dim")


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


def show_comparison(out: Console, lines: "Sequence[SolverLine]", target: str | None) -> None:
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


def show_beside(out: Console, found: "Written") -> None:
    """A paper's table with ours after each number."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for n, name in enumerate(found.columns):
        table.add_column(plain_text(name), justify="left" if n == 0 else "right")
    for row in found.rows:
        table.add_row(*map(plain_text, row))
    out.print(plain_text(found.title, "bold"))
    out.print(table)
    out.print(plain_text(found.caption, "dim"))


def show_claim(out: Console, row: dict[str, Any]) -> None:
    """A claim's verdict, and the numbers that it rests on."""
    colour = {"reproduced": "green", "not reproduced": "red", "contradicted by the paper's own table": "red"}
    verdict = plain_text(row["verdict"], colour.get(row["verdict"], "yellow"))
    out.print(Text.assemble("\n", verdict, plain_text(f": “{row['quote']}”")))
    facts = [f"holds if {row['holds_if']}"]
    facts += [] if row["own"] is None else [f"the paper's own table {row['own']:g}"]
    facts += [f"ours {row['ours']}"] if row["ours"] else [f"ours {row['cells']} cells"] if row["cells"] else []
    facts += [row["would_decide"]] if row["would_decide"] else []
    out.print(plain_text(f"  {row['rule']} ({'; '.join(facts)})", "dim"))


def _spread(value: "Spread", form: str, unit: str = "") -> str:
    if value.mean is None:
        return "-"
    spread = f" ± {form.format(value.std)}" if value.count > 1 else ""
    return form.format(value.mean) + spread + unit
