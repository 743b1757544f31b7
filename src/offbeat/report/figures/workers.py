"""What each worker did when, how many updates it made, and where its time went."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from offbeat.core.trace import RECEIVED
from offbeat.folders.run_files import RunFiles, column
from offbeat.report.draw.figure import Axis, Bars, Chart, Figure, Heat, Line, Mark, Spans
from offbeat.report.draw.style import OKABE_ITO
from offbeat.report.figures.gallery import FigureView, of_one, of_several
from offbeat.report.numbers import fewer, seconds

KINDS = ("computing", "delayed", "communicating", "waiting")
_MOST_SPANS, _MOST_EACH = 1200, 40
_MOST_LANES, _MOST_ROWS = 24, 128
_QUARTERS = tuple((k / 4, f"{k / 4:.0%}") for k in range(5))


@dataclass(frozen=True)
class Activity:
    """A worker's gradients in order of time, in seconds: begun, computed, ended."""

    worker: int
    started: NDArray[np.float64]
    computed: NDArray[np.float64]
    ended: NDArray[np.float64]
    there: float
    back: float
    """Seconds that the quickest message took, to the server and from it."""
    delayed: float = 0.0
    """The share of its computing that was injected delay, over the whole run."""


def own(run: RunFiles) -> pa.Table:
    """The gradients that the workers computed themselves; those received from peers took them no time."""
    trace = run.trace()
    if "outcome" not in trace.column_names:
        return pa.table({})
    return trace.filter(pc.field("outcome") != RECEIVED)


def activities(run: RunFiles, first: int | None = None) -> list[Activity]:
    """By worker, from the trace; the first so many gradients only."""
    trace = own(run)
    if trace.num_rows == 0:
        return []
    if first is not None and trace.num_rows > first:
        trace = trace.take(pc.select_k_unstable(trace, first, [("started", "ascending")]))
    worker, used = np.asarray(trace["worker"]), np.asarray(trace["applied"])
    times = [column(trace, name) for name in ("started", "computed", "time")]
    out = []
    for i in np.unique(worker):
        mine = np.flatnonzero(worker == i)
        mine = mine[np.argsort(times[0][mine], kind="stable")]
        started, computed, ended = (t[mine] for t in times)
        delivered = used[mine]
        there = np.min((ended - computed)[delivered], initial=np.inf)
        back = np.min((started[1:] - ended[:-1])[delivered[:-1] & delivered[1:]], initial=np.inf)
        there, back = (float(v) if np.isfinite(v) and v > 0 else 0.0 for v in (there, back))
        out.append(Activity(int(i), started, computed, ended, there, back, _delayed(run, int(i))))
    return out


def _delayed(run: RunFiles, worker: int) -> float:
    """What the engine counted; a trace has one number for both."""
    known = run.summary.get("per_worker") or ()
    mine = known[worker] if worker < len(known) else {}
    delayed, computing = mine.get("delayed", 0.0), mine.get("computing", 0.0)
    return float(delayed / (delayed + computing)) if delayed > 0 else 0.0


def _pieces(a: Activity, until: float) -> dict[str, NDArray[np.float64]]:
    """Intervals (start, end) of each kind. A gradient is computed, sent, perhaps waits for others, and is answered."""
    begun_next = np.append(a.started[1:], max(until, a.ended[-1] if len(a.ended) else until))
    arrived = np.minimum(a.computed + a.there, np.maximum(a.ended, a.computed))
    leaves = np.maximum(begun_next - a.back, arrived)
    leaves[-1] = begun_next[-1]
    done = a.computed - a.delayed * (a.computed - a.started)
    return {
        "computing": np.stack([a.started, done], 1),
        "delayed": np.stack([done, a.computed], 1),
        "waiting": np.stack([arrived, leaves], 1),
        "communicating": np.concatenate([np.stack([a.computed, arrived], 1), np.stack([leaves, begun_next], 1)]),
    }


@of_one("Workers", 10, needs="trace")
def timeline(view: FigureView) -> Chart | None:
    """Every gradient of the first moments; and, for all of the run, how busy each worker was when."""
    run = view.run
    most = min(_MOST_SPANS, _MOST_EACH * run.workers)
    acts = activities(run, most)
    if not acts:
        return None
    views: dict[str, Figure] = {}
    complete = own(run).num_rows <= most
    end = float(min(a.started[-1] for a in acts)) if not complete else float(run.trace_end)
    lanes = acts[:_MOST_LANES]
    views["everything" if complete else "the beginning"] = _spans(run, lanes, end)
    if not complete:
        views["the whole run"] = _busy(run)
    said = "Communicating is as long as the worker's quickest message; the rest is waiting."
    if any(a.delayed for a in acts):
        said += " Injected delay is drawn as the worker's share of it in the whole run; the view of the whole counts "
        said += "it as computing."
    if len(acts) > len(lanes):
        said += f" The first {len(lanes)} of {len(acts)} workers."
    return Chart("timeline", "What each worker did when", views, said, wide=True)


def _spans(run: RunFiles, acts: Sequence[Activity], end: float) -> Figure:
    marks: list[Mark] = []
    names = [f"worker {a.worker}" for a in acts]
    for kind in KINDS:
        lanes: list[str] = []
        starts, ends = [], []
        for a, name in zip(acts, names, strict=True):
            pieces = _pieces(a, end)[kind]
            pieces = pieces[(pieces[:, 0] < end)]
            pieces[:, 1] = np.minimum(pieces[:, 1], end)
            pieces = pieces[pieces[:, 1] - pieces[:, 0] > 1e-6 * end]
            lanes += [name] * len(pieces)
            starts.append(pieces[:, 0])
            ends.append(pieces[:, 1])
        start, stop = np.concatenate(starts), np.concatenate(ends)
        if len(start):
            notes = [f"{w}: {seconds(b - a)} from {a:.4g} s" for w, a, b in zip(lanes, start, stop, strict=True)]
            marks.append(Spans(lanes, start, stop - start, kind, f"@{kind}", notes))
    height = 110 + 20 * len(acts)
    x = Axis(run.time_label, "s", start=0, end=end)
    y = Axis(categories=tuple(names), reverse=True)
    return Figure("What each worker did when", x, y, tuple(marks), stacked=True, height=max(220, height), least_names=1)


def _busy(run: RunFiles, bins: int = 120) -> Figure:
    """The share of each moment that each worker computed."""
    trace = own(run)
    worker, started, computed = np.asarray(trace["worker"]), column(trace, "started"), column(trace, "computed")
    count = min(int(worker.max()) + 1, _MOST_ROWS)
    end = run.trace_end or 1.0
    width = end / bins
    # Seconds computed until each edge, as a running sum over sorted intervals: no loop over gradients.
    busy = np.zeros((count, bins))
    edges = np.linspace(0, end, bins + 1)
    for i in range(count):
        a, b = np.sort(started[worker == i]), np.sort(computed[worker == i])
        total_a, total_b = np.append(0, np.cumsum(a)), np.append(0, np.cumsum(b))
        ia, ib = np.searchsorted(a, edges), np.searchsorted(b, edges)
        # Of intervals begun by t, those ended by t count in full, the others up to t.
        until = total_b[ib] - total_a[ia] + (ia - ib) * edges
        busy[i] = np.clip(np.diff(until) / width, 0, 1)
    names = [f"worker {i}" for i in range(count)]
    heat = Heat(edges[:-1] + width / 2, names, busy, "computing", "@computing", low=0.0, high=1.0)
    x = Axis(run.time_label, "s")
    y = Axis(categories=tuple(names), reverse=True)
    height = 110 + min(20 * count, 480)
    return Figure("What each worker did when", x, y, (heat,), height=max(220, height))


@of_one("Workers", 30, needs="trace")
def updates(view: FigureView) -> Chart | None:
    """Applied gradients of each worker against time."""
    run = view.run
    trace = own(run)
    if trace.num_rows == 0:
        return None
    applied = trace.filter(pc.field("applied"))
    if applied.num_rows == 0:
        return None
    worker, time = np.asarray(applied["worker"]), column(applied, "time")
    marks: list[Mark] = []
    present = np.unique(worker)
    counts = np.bincount(worker)[present]
    if len(present) > len(OKABE_ITO) * 2:  # a crowd: the slowest, the median and the fastest stand for it
        ranked = present[np.argsort(counts, kind="stable")]
        chosen = {"slowest": ranked[0], "median": ranked[len(ranked) // 2], "fastest": ranked[-1]}
    else:
        chosen = {f"worker {i}": i for i in present}
    for n, (name, i) in enumerate(chosen.items()):
        t = np.sort(time[worker == i])
        keep = fewer(len(t), 200)
        shown = name if name.startswith("worker") else f"{name}: worker {i}"
        dash = "solid" if n < len(OKABE_ITO) else "dot"
        marks.append(
            Line(
                np.append(0, t[keep]), np.append(0, keep + 1), shown, f"@c{n % len(OKABE_ITO)}", dash, 1.6, stairs=True
            )
        )
    x = Axis(run.time_label, "s", start=0)
    figure = Figure("Gradients applied by each worker", x, Axis("gradients applied", start=0), tuple(marks))
    return Chart.of("updates", figure, "A slow worker's line is flatter; a lost worker's ends.")


@of_one("Workers", 40, needs="time breakdown")
def breakdown(view: FigureView) -> Chart | None:
    """Where the seconds of each worker went."""
    shares: Sequence[dict[str, float]] = view.run.summary.get("per_worker") or ()
    if not shares:
        return None
    names = [f"worker {i}" for i in range(len(shares))]
    if len(shares) > _MOST_ROWS:  # a crowd: the least, the middle and the most busy stand for it
        ranked = sorted(range(len(shares)), key=lambda i: shares[i]["computing"] / (shares[i]["present"] or 1.0))
        chosen = {"least busy": ranked[0], "median": ranked[len(ranked) // 2], "busiest": ranked[-1]}
        names, shares = [f"{what}: worker {i}" for what, i in chosen.items()], [shares[i] for i in chosen.values()]
    marks = []
    for kind in KINDS:
        spent = np.array([w.get(kind, 0.0) / w["present"] if w.get("present") else 0.0 for w in shares])
        if spent.max() > 1e-9:
            marks.append(Bars(names, spent, kind, f"@{kind}", width=0.72))
    return _shares("Where each worker's time went", names, marks, "shares of the time that the worker was there")


@of_one("Workers", 41, needs="several machines")
def breakdown_by_machine(view: FigureView) -> Chart | None:
    """Where the seconds of the workers of each machine went, where there are several."""
    machines: Sequence[dict[str, Any]] = view.run.summary.get("per_machine") or ()
    if len(machines) < 2:
        return None
    names = [f"{m['machine']} ({m['workers']})" for m in machines]
    marks = []
    for kind in KINDS:
        spent = np.array([m.get(kind, 0.0) / m["present"] if m.get("present") else 0.0 for m in machines])
        if spent.max() > 1e-9:
            marks.append(Bars(names, spent, kind, f"@{kind}", width=0.72))
    said = "shares of the time that each machine's workers (so many) were there; who moved counts where it was last"
    return _shares("Time by machine", names, marks, said, key="machines")


@of_several("Time", 20)
def breakdown_by_group(view: FigureView) -> Chart | None:
    """Where the workers' time went, a bar a group."""
    groups = view.bars
    columns = {"computing": "computing_share", "delayed": "delayed_share"}
    columns |= {"communicating": "communicating_share", "waiting": "idle_share"}
    names, marks = [g.name for g in groups], []
    for kind, key in columns.items():
        share = np.array([np.mean([r.summary.get(key) or 0.0 for r in g.runs]) for g in groups])
        if share.max() > 1e-9:
            marks.append(Bars(names, share, kind, f"@{kind}", width=0.62))
    if not marks:
        return None
    return _shares("Where the workers' time went", names, marks, "mean over workers and seeds")


def _shares(title: str, names: Sequence[str], marks: Sequence[Mark], said: str, key: str = "breakdown") -> Chart:
    height = max(220, 120 + 22 * len(names))
    figure = Figure(
        title,
        Axis("share of time", percent=True, start=0, end=1, ticks=_QUARTERS),
        Axis(categories=tuple(names), reverse=True),
        tuple(marks),
        stacked=True,
        horizontal=True,
        height=min(height, 640),
        least_names=1,
    )
    return Chart.of(key, figure, said[:1].upper() + said[1:] + ".")
