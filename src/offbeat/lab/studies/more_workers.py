"""What more workers bring, by the clock alone: throughput and waiting against their number, where it ends, and why."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from offbeat.core.errors import ConfigError
from offbeat.core.solver import Solver
from offbeat.core.units import counted, format_size
from offbeat.engines.cluster import MOST_WORKERS, Cluster
from offbeat.lab.runs.folder import metrics_table
from offbeat.lab.studies import bottleneck
from offbeat.lab.studies.timing import Timed, rule_of, simulate

if TYPE_CHECKING:
    from offbeat.report.draw.figure import Figure
    from offbeat.report.pages.page import Page

ROUNDS, LEAST = 20, 400
"""So many gradients of each worker are simulated, and at least so many in all."""
_START = 0.25  # the share of the gradients that is left out, until the rule has found its pace
_HALF = 0.5  # a rule has stopped to scale where more workers bring less than this of their share


@dataclass(frozen=True)
class End:
    """Where a rule stops scaling, and what is in the way there."""

    workers: int
    """The last number of workers up to which it scaled."""
    beyond: int
    """The next one, for which the reason was sought."""
    reason: str
    gain: float
    """So many times the samples a second would it be on that number without it."""

    def said(self, solver: str) -> str:
        many = counted(self.workers, "worker")
        if self.reason == bottleneck.NOTHING:
            return f"{solver} stops scaling at {many}; no single part of the cluster is the reason."
        without = f"without it, {self.beyond:,} workers would bring {self.gain:.2g} times as many samples a second"
        return f"{solver} stops scaling at {many}, because of {self.reason}: {without}."


@dataclass(frozen=True)
class Scaling:
    """Several rules on growing numbers of workers. In a notebook it shows itself; `save` writes a page or pictures."""

    rows: Sequence[Mapping[str, Any]]
    """One for each rule and number of workers."""
    ends: Mapping[str, End | None]
    """By rule; None for one that scales to the end."""
    cluster: Cluster
    """With its largest number of workers."""
    nbytes: int = 0

    @property
    def verdict(self) -> list[str]:
        """Where each rule stops scaling, and why, in words."""
        most = max(row["workers"] for row in self.rows)
        return [
            f"{name} scales up to {counted(most, 'worker')}, the most that were tried."
            if end is None
            else end.said(name)
            for name, end in self.ends.items()
        ]

    @property
    def table(self) -> pa.Table:
        """One row for each rule and number of workers."""
        return metrics_table([dict(row) for row in self.rows])

    @cached_property
    def figures(self) -> dict[str, "Figure"]:
        """ "throughput" and "waiting", against the number of workers."""
        from offbeat.report.figures.by_workers import throughput, waiting

        stops = {name: None if end is None else end.workers for name, end in self.ends.items()}
        return {"throughput": throughput(self.rows, stops), "waiting": waiting(self.rows)}

    def page(self) -> "Page":
        from offbeat.report.pages.scaling_study import page

        return page(self.rows, self.figures, self.verdict, self.about)

    @property
    def about(self) -> str:
        """The cluster in a line: what is not as usual."""
        usual = Cluster.parse(workers=self.cluster.workers).to_dict()
        told = [f"{k} {_text(v)}" for k, v in self.cluster.to_dict().items() if v != usual.get(k) or k == "compute"]
        size = [f"parameters of {format_size(self.nbytes)}"] if self.nbytes else []
        return f"The cluster: {', '.join([*told, *size])}."

    def save(self, path: str | Path) -> list[Path]:
        """A page (.html), or two pictures (.svg, .png, .pdf): the second is named after the first, with "-waiting"."""
        path = Path(path)
        check_suffix(path)
        if path.suffix == ".html":
            return [self.page().save(path)]
        beside = path.with_stem(f"{path.stem}-waiting")
        return [self.figures["throughput"].save(path), self.figures["waiting"].save(beside)]

    def __repr__(self) -> str:
        return "\n".join(self.verdict)

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()


def check_suffix(path: Path) -> None:
    from offbeat.report.draw.as_matplotlib import FORMATS

    if path.suffix.lstrip(".") not in ("html", *FORMATS):
        raise ConfigError(f"--out must be .html, .svg, .png or .pdf, got {path.name!r}")


def parse_counts(given: str | int | Sequence[int]) -> list[int]:
    """Numbers of workers: `1..4096` doubles from the one to the other, `1,2,12` are these; in increasing order."""
    allowed = f"workers must be numbers from 1 to {MOST_WORKERS:,}, such as 64, 1..4096 or 1,2,12"
    parts = given.split(",") if isinstance(given, str) else [given] if isinstance(given, int) else list(given)
    found: set[int] = set()
    for part in parts:
        first, dots, last = str(part).partition("..")
        try:
            low, high = int(first), int(last if dots else first)
        except ValueError:
            raise ConfigError(f"{allowed}, got {given!r}") from None
        if isinstance(part, bool) or not 1 <= low <= high <= MOST_WORKERS:
            raise ConfigError(f"{allowed}, got {given!r}")
        found |= {low << k for k in range(high.bit_length()) if low << k <= high} | {high}
    if not found:
        raise ConfigError(f"{allowed}, got {given!r}")
    return sorted(found)


def scaling(
    cluster: Cluster,
    rules: Mapping[str, Solver],
    counts: Sequence[int],
    *,
    limit: Mapping[str, Any] | None = None,
    nbytes: int = 0,
    batch: int = 1,
    seed: int = 0,
    progress: Callable[[str], object] = lambda name: None,
) -> Scaling:
    """Every rule on every number of workers. `limit` are the updates or seconds of each; 20 gradients a worker else."""
    rows: list[dict[str, Any]] = []
    ends: dict[str, End | None] = {}

    def rate(machines: Cluster, rule: Solver, name: str) -> tuple[float, Timed]:
        progress(f"{name}, {counted(machines.workers, 'worker')}")
        wanted = limit or _enough(rule, machines.workers)
        timed = simulate(machines, rule, nbytes=nbytes, batch=batch, seed=seed, **wanted)
        return steady_rate(timed), timed

    def rate_alone(machines: Cluster, rule: Solver, name: str) -> float:
        return rate(machines, rule, name)[0]

    asgd = rule_of("asgd", {})
    ideal = [rate_alone(bottleneck.only_computing(resized(cluster, n)), asgd, "computing alone") for n in counts]
    for name, rule in rules.items():
        rates = []
        for n, most in zip(counts, ideal, strict=True):
            per_second, timed = rate(resized(cluster, n), rule, name)
            rates.append(per_second)
            rows.append(_row(name, n, per_second, most, timed.summary))
        last = _last_that_scales(rates, ideal)
        if last == len(counts) - 1:
            ends[name] = None
        else:
            machines = resized(cluster, counts[last + 1])
            run = partial(rate_alone, rule=rule, name=f"why {name} is no faster")
            reason, gain = bottleneck.reason(machines, rates[last + 1], run, batch)
            ends[name] = End(counts[last], counts[last + 1], reason, gain)
    return Scaling(rows, ends, resized(cluster, counts[-1]), nbytes)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _enough(rule: Solver, workers: int) -> dict[str, int]:
    """Updates: one is of everybody's gradients behind a barrier, of one gradient elsewhere."""
    gradients = max(ROUNDS * workers, LEAST)
    return {"updates": -(-gradients // workers) if rule.barrier else gradients}


def steady_rate(timed: Timed) -> float:
    """Samples a virtual second, without the start: until then fewer queue than later."""
    applied = timed.trace.filter(timed.trace["applied"])
    times, samples = applied["time"].to_numpy(), applied["samples"].to_numpy()
    if len(times):
        begun, ended = times[int(_START * len(times))], times[-1]
        if ended > begun:
            return float(samples[times > begun].sum() / (ended - begun))
    return float(timed.summary["samples_per_virtual_second"] or 0.0)


def _row(name: str, workers: int, rate: float, ideal: float, s: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "solver": name,
        "workers": workers,
        "samples_per_virtual_second": rate,
        "ideal": ideal,
        "efficiency": rate / ideal if ideal else None,
        "mean_staleness": s["mean_staleness"],
        "computing_share": s["computing_share"],
        "communicating_share": s["communicating_share"],
        "idle_share": s["idle_share"],
        "server_busy_share": s["server_busy_share"],
    }


def _last_that_scales(rates: Sequence[float], ideal: Sequence[float]) -> int:
    """The place after the last step that still brings half of what it should: twice the workers, half as much again.

    The last, because the first step may be the worst: one worker sums with nobody.
    """
    last = 0
    for k in range(len(rates) - 1):
        more, should = rates[k + 1] / (rates[k] or 1.0) - 1, ideal[k + 1] / (ideal[k] or 1.0) - 1
        if more >= _HALF * should:
            last = k + 1
    return last


def resized(cluster: Cluster, workers: int) -> Cluster:
    """The same cluster with another number of workers: what was said of workers beyond them is left out."""

    def kept(entries: Sequence[Any]) -> Any:
        there = [(e, None if e.workers is None else tuple(w for w in e.workers if w < workers)) for e in entries]
        return tuple(replace(e, workers=mine) for e, mine in there if mine is None or mine)

    named = {name: kept(getattr(cluster, name)) for name in ("compute", "delay", "speed", "slow", "loss")}
    named["loss"] = tuple(replace(e, floor=min(e.floor, workers - 1)) for e in named["loss"])
    events = tuple(e for e in cluster.events if e.worker < workers)
    return replace(cluster, workers=workers, events=events, **named, **_machines(cluster, workers))


def _machines(cluster: Cluster, workers: int) -> dict[str, Any]:
    """Nodes of as many workers as before, and racks of as many nodes."""
    if cluster.nodes is None:
        return {}
    nodes = -(-workers * cluster.nodes // cluster.workers)
    return (
        {"nodes": nodes}
        if cluster.racks is None
        else {"nodes": nodes, "racks": -(-nodes * cluster.racks // cluster.nodes)}
    )
