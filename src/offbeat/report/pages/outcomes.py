"""The tables of several runs: how the groups did, in what they differ, and every run."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from offbeat.core.budget import Target
from offbeat.folders.run_files import RunFiles
from offbeat.report.groups import Group, clocks
from offbeat.report.numbers import listed, mean, plus_minus
from offbeat.report.read import flat
from offbeat.report.tables import Table
from offbeat.report.targets import reference, time_to

_MOST_ROWS = 400


def outcomes(groups: Sequence[Group], goal: Target | None) -> Table:
    """One row a group of one clock: means and standard deviations over the seeds."""
    times = [[] if goal is None else [time_to(r, goal) for r in g.runs] for g in groups]
    ups, against = _speed_ups(groups, times)
    rows = []
    for g, mine, up in zip(groups, times, ups, strict=True):
        statuses = Counter(r.status for r in g.runs)
        row: list[Any] = [g.name, g.workers, len(g.runs), plus_minus(g.values("accuracy"), 4)]
        row += [plus_minus(g.values("loss"))]
        if goal is not None:
            missed = f" ({mine.count(None)} missed)" if None in mine else ""
            row += [plus_minus(mine) + missed, None if up is None else f"{up:.2f}×"]
        row += [plus_minus([r.seconds for r in g.runs]), plus_minus(g.values("mean_staleness"))]
        idle = mean(g.values("idle_share"))
        row += [None if idle is None else f"{idle:.0%}", ", ".join(f"{n} {s}" for s, n in statuses.items())]
        rows.append(row)
    clock = " or ".join(clocks(groups))
    columns = ["group", "workers", "seeds", "held-out accuracy", "loss"]
    columns += [] if goal is None else [f"{clock} time to {goal} (s)", _over(against)]
    columns += [f"{clock} time (s)", "staleness", "waiting", "status"]
    gone = {"held-out accuracy"} if all(row[3] == "–" for row in rows) else set()
    if not against:
        gone.add(_over(against))
    rows = [[v for v, c in zip(row, columns, strict=True) if c not in gone] for row in rows]
    columns = [c for c in columns if c not in gone]
    said = "Mean ± standard deviation over seeds."
    said += f" The speed-up is that of the mean time, over {listed(against)}." if against else ""
    return Table("outcomes", "Outcome", columns, rows, said)


def _speed_ups(
    groups: Sequence[Group], times: Sequence[Sequence[float | None]]
) -> tuple[list[float | None], list[str]]:
    """Each group's, where all of its seeds got there, and over whom; groups of one clock have one reference."""
    ups: list[float | None] = [None] * len(groups)
    against: list[str] = []
    for clock in clocks(groups):
        mine = [i for i, g in enumerate(groups) if g.runs[0].clock == clock]
        first = reference([groups[i].solver for i in mine], [times[i] for i in mine])
        if first is None:
            continue
        unit = mean(times[mine[first]])
        against.append(groups[mine[first]].name)
        for i in mine:
            middle = mean(times[i])
            ups[i] = unit / middle if unit and middle and all(times[i]) else None
    return ups, list(dict.fromkeys(against))


def _over(against: Sequence[str]) -> str:
    return f"speed-up over {against[0]}" if len(against) == 1 else "speed-up"


def differences(groups: Sequence[Group]) -> Table:
    """The settings that differ between the groups, and only those."""
    settings = [{**flat(g.runs[0].config), "solver.name": g.solver} for g in groups]
    keys = [k for k in dict.fromkeys(k for s in settings for k in s) if len({str(s.get(k)) for s in settings}) > 1]
    keys = [k for k in keys if k != "seed"]
    rows = [[g.name, *(s.get(k) for k in keys)] for g, s in zip(groups, settings, strict=True)]
    return Table("settings", "What differs", ["group", *keys], rows, "Everything else is the same in all runs.")


def listing(runs: Sequence[RunFiles], groups: Sequence[Group], goal: Target | None) -> Table:
    """One row a run; seconds of different clocks are in different columns."""
    every = clocks(groups)
    names = {id(r): g.name for g in groups for r in g.runs}
    rows = []
    for r in runs[:_MOST_ROWS]:
        s = r.summary
        row = [names[id(r)], r.seed, r.status, s.get("accuracy"), s.get("loss")]
        for clock in every:
            row += [] if goal is None else [time_to(r, goal) if r.clock == clock else None]
            row.append(r.seconds if r.clock == clock else None)
        rows.append([*row, s.get("updates"), s.get("mean_staleness"), r.place])
    columns = ["group", "seed", "status", "accuracy", "loss"]
    for clock in every:
        columns += [] if goal is None else [f"{clock} time to {goal} (s)"]
        columns.append(f"{clock} time (s)")
    columns += ["updates", "staleness", "folder"]
    said = "" if len(runs) <= _MOST_ROWS else f"The first {_MOST_ROWS} of {len(runs)} runs."
    return Table("runs", "Every run", columns, rows, said)
