"""The page of several runs, compared."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from offbeat.core.budget import HIGHER_IS_BETTER, Target
from offbeat.report import curves, grids, scaling, staleness, workers
from offbeat.report.figure import Chart
from offbeat.report.groups import Group, group
from offbeat.report.numbers import known, mean, plus_minus
from offbeat.report.page import Page, Section
from offbeat.report.read import RunFiles, flat
from offbeat.report.tables import Table
from offbeat.report.verdict import Measure, judge

_MOST_LINES, _MOST_BARS = 10, 24
_MOST_ROWS = 400


def page(
    runs: Sequence[RunFiles],
    *,
    target: str | None = None,
    title: str | None = None,
    grid: grids.Grid | None = None,
    over: Sequence[str] = (),
    metric: str | None = None,
) -> Page:
    """Groups of runs that differ in more than their seed, side by side; `over` names keys for heat maps or lines."""
    groups = sorted(group(runs), key=lambda g: g.solver != "plain")  # the reference comes first
    goal, given = find_target(groups, target)
    drawn, bars = best(groups, _MOST_LINES), groups[:_MOST_BARS]
    first = f"{groups[0].runs[0].clock} time"
    goals = {} if goal is None else {goal.metric: goal.value}
    learning = [
        curves.chart(drawn, "accuracy", target=goals.get("accuracy"), first=first, caption=_band(groups)),
        curves.chart(drawn, "loss", target=goals.get("loss"), first=first, caption=_band(groups)),
        curves.chart(drawn, "train_loss", first=first),
        curves.chart(drawn, "train_accuracy", first=first),
    ]
    time: list[Chart | None] = [
        *(scaling.time_chart(bars, goal) if goal is not None else ()),
        workers.breakdown_by_group(bars),
        *scaling.speed_up(groups, goal),
    ]
    inside = [
        staleness.by_group(drawn),
        curves.chart(drawn, "grad_norm", first=first),
        curves.chart(drawn, "weight_norm", first=first),
        curves.chart(drawn, "staleness", first=first, title="Mean staleness"),
    ]
    settings = Section("Over the settings", grids.charts(grid or grids.of_runs(runs), over, metric))
    outcome = Section("Outcome", tables=[outcomes(groups, goal)])
    sections = [
        *([settings, outcome] if len(groups) > _MOST_LINES else [outcome, settings]),
        Section("Learning", _there(learning), text=_too_many(groups)),
        Section("Time", _there(time), text="" if given or goal is None else _afterwards(goal)),
        Section("Staleness and norms", _there(inside)),
        Section("Runs", tables=[differences(groups), listing(runs, groups, goal)]),
    ]
    return Page(
        title=title or _title(groups),
        lead=[said(runs, groups)],
        verdict=verdict(groups, goal, given),
        warnings=warnings(runs),
        sections=[s for s in sections if s.charts or s.tables],
        foot=f"{len(runs)} runs · times are {' or '.join(curves.clocks(groups))}",
        colours={g.name: g.colour for g in groups},
    )


def best(groups: Sequence[Group], count: int) -> Sequence[Group]:
    """The best by final score where there are too many to draw, in their own order."""
    score = _score(groups) or next((n for n in ("accuracy", "loss") if any(known(g.values(n)) for g in groups)), None)
    if len(groups) <= count or score is None:
        return groups[:count]
    sign = -1.0 if HIGHER_IS_BETTER[score] else 1.0
    done = [(sign * (mean(g.values(score)) or 0.0), g) for g in groups if all(r.status == "done" for r in g.runs)]
    chosen = {id(g) for _, g in sorted(done, key=lambda p: p[0])[:count]}
    return [g for g in groups if id(g) in chosen] or groups[:count]


def _there(charts: Sequence[Chart | None]) -> list[Chart]:
    return [c for c in charts if c is not None]


def find_target(groups: Sequence[Group], target: str | None) -> tuple[Target | None, bool]:
    """The target, and whether somebody set it before the runs were seen."""
    if target is not None:
        return Target.parse(target), True
    found = scaling.common_target(groups)
    return (None, False) if found is None else found


def verdict(groups: Sequence[Group], goal: Target | None, given: bool) -> list[str]:
    """The time to the target first, if one was set; then what they ended with."""
    if len(groups) < 2:
        return []
    out: list[str] = []
    if goal is not None and given:
        clock = set(curves.clocks(groups))
        if len(clock) > 1:
            out.append("Times are not compared: some are virtual, some are wall time.")
        else:
            missing = f"missed {goal}"
            name = f"{clock.pop()} time to {goal}"
            out += judge(
                groups, Measure(name, lambda r: scaling.time_to(r, goal), False, "sooner than", " s", missing)
            ).sentences
    score = _score(groups)
    if score is not None:
        name = f"final {curves.metric_name(score)}"
        higher = HIGHER_IS_BETTER[score]
        ahead = "above" if higher else "below"
        out += judge(groups, Measure(name, lambda r: r.summary.get(score), higher, ahead)).sentences
    out.append(f"Differences are paired by seed, with {_level(groups)} bootstrap intervals.")
    return list(dict.fromkeys(out))


def _level(groups: Sequence[Group]) -> str:
    return "95%" if len(groups) == 2 else "jointly 95%"


def _score(groups: Sequence[Group]) -> str | None:
    for name in ("accuracy", "loss"):
        if all(any(v is not None for v in g.values(name)) for g in groups):
            return name
    return None


def outcomes(groups: Sequence[Group], goal: Target | None) -> Table:
    """One row a group: means and standard deviations over the seeds."""
    rows = []
    first = None
    for g in groups:
        times = [] if goal is None else [scaling.time_to(r, goal) for r in g.runs]
        middle = mean(times) if None not in times else None
        first = middle if g is groups[0] else first
        gain = None if first is None or middle is None or middle == 0 else f"{first / middle:.2f}×"
        one_clock = g.runs[0].clock == groups[0].runs[0].clock
        statuses = Counter(r.status for r in g.runs)
        row: list[Any] = [g.name, g.workers, len(g.runs), plus_minus(g.values("accuracy"), 4)]
        row += [plus_minus(g.values("loss"))]
        if goal is not None:
            missed = f" ({times.count(None)} missed)" if None in times else ""
            row += [plus_minus(times) + missed, gain if one_clock else None]
        row += [plus_minus([r.seconds for r in g.runs]), plus_minus(g.values("mean_staleness"))]
        idle = mean(g.values("idle_share"))
        row += [None if idle is None else f"{idle:.0%}", ", ".join(f"{n} {s}" for s, n in statuses.items())]
        rows.append(row)
    clock = " or ".join(curves.clocks(groups))
    columns = ["group", "workers", "seeds", "held-out accuracy", "loss"]
    columns += [] if goal is None else [f"{clock} time to {goal} (s)", "speed-up"]
    columns += [f"{clock} time (s)", "staleness", "waiting", "status"]
    gone = {"held-out accuracy"} if all(row[3] == "–" for row in rows) else set()
    rows = [[v for v, c in zip(row, columns, strict=True) if c not in gone] for row in rows]
    columns = [c for c in columns if c not in gone]
    said = "Mean ± standard deviation over seeds. The speed-up is that of the mean time, against the first row."
    return Table("outcomes", "Outcome", columns, rows, said)


def differences(groups: Sequence[Group]) -> Table:
    """The settings that differ between the groups, and only those."""
    settings = [{**flat(g.runs[0].config), "solver.name": g.solver} for g in groups]
    keys = [k for k in dict.fromkeys(k for s in settings for k in s) if len({str(s.get(k)) for s in settings}) > 1]
    keys = [k for k in keys if k != "seed"]
    rows = [[g.name, *(s.get(k) for k in keys)] for g, s in zip(groups, settings, strict=True)]
    return Table("settings", "What differs", ["group", *keys], rows, "Everything else is the same in all runs.")


def listing(runs: Sequence[RunFiles], groups: Sequence[Group], goal: Target | None) -> Table:
    names = {id(r): g.name for g in groups for r in g.runs}
    rows = []
    for r in runs[:_MOST_ROWS]:
        s = r.summary
        row = [names[id(r)], r.seed, r.status, s.get("accuracy"), s.get("loss")]
        row += [] if goal is None else [scaling.time_to(r, goal)]
        rows.append([*row, r.seconds, s.get("updates"), s.get("mean_staleness"), str(r.path)])
    columns = ["group", "seed", "status", "accuracy", "loss"]
    columns += [] if goal is None else [f"time to {goal} (s)"]
    columns += ["time (s)", "updates", "staleness", "folder"]
    said = "" if len(runs) <= _MOST_ROWS else f"The first {_MOST_ROWS} of {len(runs)} runs."
    return Table("runs", "Every run", columns, rows, said)


def said(runs: Sequence[RunFiles], groups: Sequence[Group]) -> str:
    """What was run, in words."""
    tasks = list(dict.fromkeys(r.task for r in runs))
    seeds = sorted({len(g.runs) for g in groups})
    each = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    plural = "" if each == "1" else "s"
    counts = sorted({g.workers for g in groups})
    on = f"{counts[0]}" if len(counts) == 1 else f"{', '.join(map(str, counts[:-1]))} and {counts[-1]}"
    text = f"{len(runs)} runs of {' and '.join(tasks)}: {len(groups)} group{'s' if len(groups) > 1 else ''}, "
    text += f"{each} seed{plural} each, on {on} worker{'' if on == '1' else 's'}. "
    names = [g.name for g in groups]
    return text + (f"Compared are {', '.join(names[:-1])} and {names[-1]}." if 1 < len(names) <= 8 else "")


def warnings(runs: Sequence[RunFiles]) -> list[str]:
    counts = Counter(r.status for r in runs if r.status != "done")
    out = [f"{n} of {len(runs)} runs: {status}." for status, n in counts.items()]
    stalled = sum(bool(r.summary.get("stalled")) for r in runs)
    if stalled:
        out.append(f"{stalled} of {len(runs)} runs stalled: no better than always naming the commonest class.")
    return out


def _title(groups: Sequence[Group]) -> str:
    tasks = list(dict.fromkeys(g.runs[0].task for g in groups))
    solvers = list(dict.fromkeys(g.solver for g in groups))
    shown = f"{', '.join(solvers[:-1])} and {solvers[-1]}" if len(solvers) > 1 else solvers[0]
    return f"{shown if len(solvers) < 7 else f'{len(solvers)} solvers'} on {' and '.join(tasks)}"


def _band(groups: Sequence[Group]) -> str:
    return "Lines are means over seeds, bands span them." if any(len(g.runs) > 1 for g in groups) else ""


def _too_many(groups: Sequence[Group]) -> str:
    return "" if len(groups) <= _MOST_LINES else f"The best {_MOST_LINES} of {len(groups)} groups are drawn."


def _afterwards(goal: Target) -> str:
    return f"No target was set; {goal} is the best that every finished run reached."
