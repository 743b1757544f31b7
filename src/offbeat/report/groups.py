"""Runs that differ in nothing but their seed are one group: one line, one colour, one name."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from offbeat.folders.run_files import RunFiles
from offbeat.report.draw.style import solver_colours, variants
from offbeat.report.read import flat

# What does not make two runs different experiments, only differently recorded ones.
_SILENT = ("seed", "from", "objects", "record.", "evaluate.keep_best")
_MANY = 6
_SHORT = {"cluster.workers": "workers", "optimizer.lr": "lr", "data.batch": "batch", "optimizer.name": "", "engine": ""}


@dataclass(frozen=True)
class Group:
    """A name for people, and the runs behind it, by seed."""

    name: str
    solver: str
    colour: str
    dash: str
    runs: Sequence[RunFiles]

    @property
    def workers(self) -> int:
        return max(r.workers for r in self.runs)

    def values(self, key: str) -> list[float | None]:
        """A number of the summaries, one a run."""
        return [r.summary.get(key) for r in self.runs]


def group(runs: Sequence[RunFiles]) -> list[Group]:
    """In the order of the runs; named by the solver and by those keys that are needed to tell groups apart."""
    settings = [_settings(r) for r in runs]
    varying = [k for k in dict.fromkeys(k for s in settings for k in s) if len({str(s.get(k)) for s in settings}) > 1]
    by_settings: dict[tuple[Any, ...], list[int]] = {}
    for i, s in enumerate(settings):
        by_settings.setdefault(tuple(str(s.get(k)) for k in varying), []).append(i)
    members = list(by_settings.values())
    if len(members) > _MANY:  # a sweep: in order of its settings, not of its folders
        members.sort(key=lambda m: [_rank(settings[m[0]].get(k)) for k in ["solver.name", "cluster.workers", *varying]])
    names = _names([settings[m[0]] for m in members], varying)
    found = [sorted((runs[i] for i in indices), key=lambda r: r.seed) for indices in members]
    looks = _looks([mine[0].solver for mine in found])
    return [Group(name, mine[0].solver, *look, mine) for name, mine, look in zip(names, found, looks, strict=True)]


class Configuration(NamedTuple):
    """One of several: what it differs in from the others, and its runs."""

    name: str
    differs: dict[str, Any]
    seeds: list[int]
    folders: list[str]


def configurations(runs: Sequence[RunFiles]) -> tuple[dict[str, Any], list[Configuration]]:
    """What all runs have in common, and the configurations that there are."""
    groups = group(runs)
    settings = [_settings(g.runs[0]) for g in groups]
    keys = list(dict.fromkeys(k for s in settings for k in s))
    varying = [k for k in keys if len({str(s.get(k)) for s in settings}) > 1]
    found = []
    for g, s in zip(groups, settings, strict=True):
        differs = {k: s.get(k) for k in varying}
        found.append(Configuration(g.name, differs, [r.seed for r in g.runs], [str(r.path) for r in g.runs]))
    return {k: settings[0].get(k) for k in keys if k not in varying}, found


def clocks(groups: Sequence[Group]) -> list[str]:
    """Whose seconds the runs counted: "virtual", "wall" or both."""
    return list(dict.fromkeys(r.clock for g in groups for r in g.runs))


def by_clock(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """Simulated runs and real ones apart: they share no column and no axis."""
    return {clock: [g for g in groups if g.runs[0].clock == clock] for clock in clocks(groups)}


def _rank(value: Any) -> tuple[bool, float, str]:
    """Numbers by size, before words by name."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return (not number, float(value) if number else 0.0, str(value))


def _settings(run: RunFiles) -> dict[str, Any]:
    everything = flat({**run.config, "task": {"name": run.task, **_section(run, "task")}})
    everything["solver.name"] = run.solver
    everything["clock"] = run.clock
    return {k: v for k, v in everything.items() if not k.startswith(_SILENT)}


def _section(run: RunFiles, name: str) -> dict[str, Any]:
    section = run.config.get(name)
    return section if isinstance(section, dict) else {}


def _names(settings: Sequence[dict[str, Any]], varying: Sequence[str]) -> list[str]:
    """The fewest keys that tell the groups apart, the solver and the number of workers first."""
    first = [k for k in ("task.name", "solver.name", "engine", "cluster.workers", "optimizer.lr") if k in varying]
    chosen: list[str] = []
    parts: list[tuple[str, ...]] = [() for _ in settings]
    for key in [*first, *(k for k in varying if k not in first)]:
        finer = [(*p, str(s.get(key))) for p, s in zip(parts, settings, strict=True)]
        if len(set(finer)) > len(set(parts)) or key == "solver.name":
            chosen.append(key)
            parts = finer
    if not chosen or chosen[0] not in ("task.name", "solver.name"):
        return [" ".join([str(s.get("solver.name")), *_labels(s, chosen)]) for s in settings]
    return [" ".join(_labels(s, chosen)) for s in settings]


def _labels(settings: dict[str, Any], keys: Sequence[str]) -> list[str]:
    out = []
    for key in keys:
        value = settings.get(key)
        if key in ("task.name", "solver.name"):
            out.append(str(value))
        elif key == "cluster.workers":
            out.append(f"W={value}")
        else:
            short = _SHORT.get(key, key.rpartition(".")[2].replace("_", " "))
            shown = f"{value:g}" if isinstance(value, float) else "none" if value in (None, "", []) else str(value)
            out.append(f"{short}={shown}" if short else shown)
    return out


def _looks(solvers: Sequence[str]) -> list[tuple[str, str]]:
    """A colour and a dash for each group."""
    counts = Counter(solvers)
    own = solver_colours(solvers)
    waiting = {name: iter(variants(name, n, alone=len(counts) == 1, own=own[name])) for name, n in counts.items()}
    return [next(waiting[name]) for name in solvers]
