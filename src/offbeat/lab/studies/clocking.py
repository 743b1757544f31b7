"""`offbeat.time`: the clock alone, for one rule or for several on one cluster."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

from offbeat.core.budget import Amount
from offbeat.core.errors import ConfigError
from offbeat.core.solver import Solver
from offbeat.core.units import parse_count, parse_size
from offbeat.engines.cluster import Cluster
from offbeat.lab.arguments import ClusterLike, SolverLike, must_be
from offbeat.lab.clusters import find_cluster
from offbeat.lab.config import put
from offbeat.lab.config.objects import solver_name
from offbeat.lab.engines import ENGINES, entry
from offbeat.lab.studies.dry_run import DryRun
from offbeat.lab.studies.more_workers import ROUNDS, Scaling, parse_counts, scaling
from offbeat.lab.studies.timing import rule_of, simulate
from offbeat.lab.studies.timings import Timings
from offbeat.progress import scaling_progress, time_progress, watched

USUAL: Mapping[str, Any] = {"workers": 100, "compute": "normal(1s, 0.2s)", "service": "1ms"}
"""The cluster where nobody says which."""
_BYTES = 4
"""Of one parameter: a 32-bit float."""
_BUDGET = "10000updates"
Counts = str | Sequence[int]
"""Several numbers of workers."""


class TimeWords(TypedDict, total=False):
    """The words of `time`, by keyword."""

    engine: str | None
    budget: str | Amount | None
    compute: str | Iterable[str] | None
    delay: str | Iterable[str] | None
    latency: str | None
    bandwidth: str | None
    service: str | None
    server: str | None
    size: str | int | None
    parameters: str | int | None
    batch: int
    seed: int
    settings: Mapping[str, Any] | None
    progress: bool | None


Solvers = SolverLike | Sequence[SolverLike]


@overload
def time(
    solvers: Solvers = ...,
    cluster: ClusterLike = ...,
    *,
    workers: int | None = None,
    dry_run: Literal[False] = False,
    **words: Unpack[TimeWords],
) -> Timings: ...
@overload
def time(
    solvers: Solvers = ...,
    cluster: ClusterLike = ...,
    *,
    workers: Counts,
    dry_run: Literal[False] = False,
    **words: Unpack[TimeWords],
) -> Scaling: ...
@overload
def time(
    solvers: Solvers = ...,
    cluster: ClusterLike = ...,
    *,
    workers: int | Counts | None = None,
    dry_run: Literal[True],
    **words: Unpack[TimeWords],
) -> DryRun: ...
def time(
    solvers: Solvers = "asgd",
    cluster: ClusterLike = None,
    *,
    workers: int | Counts | None = None,
    engine: str | None = None,
    budget: str | Amount | None = None,
    compute: str | Iterable[str] | None = None,
    delay: str | Iterable[str] | None = None,
    latency: str | None = None,
    bandwidth: str | None = None,
    service: str | None = None,
    server: str | None = None,
    size: str | int | None = None,
    parameters: str | int | None = None,
    batch: int = 1,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    dry_run: bool = False,
    progress: bool | None = None,
) -> Timings | Scaling | DryRun:
    """The clock alone, without gradients: throughput, staleness, idle time, queueing; `offbeat time` is the same.

    With several numbers of workers it is a `Scaling`: what more of them bring, where that ends, and why, as a figure.

    Args:
        solvers: a rule or several: names (`"sync,asgd"`), classes or objects.
        cluster: so many workers, a `Cluster`, or a file with a `[cluster]` section; 100 workers unless given, whose
            batches take normal(1s, 0.2s) and whose server takes 1 ms a message.
        workers: their number, whatever the cluster says; or several: `"1..4096"` doubles, `"1,2,12"` and `[1, 2, 12]`
            are these.
        engine: `"sim"`, and no other: the clock alone is virtual.
        budget: `"10000updates"` or `"60s"` (virtual). 10,000 updates unless given; for several numbers of workers, 20
            gradients of each worker.
        compute: the time of a mini-batch, of all or by worker: `["10ms", "40ms@0"]`.
        delay: extra delay of a mini-batch, likewise: `"30ms@0"`.
        latency: of one message, each way.
        bandwidth: of a worker's link: `"10Gbps"`.
        service: what the server takes for one message.
        server: the bandwidth of the server's own link, which all messages share: `"10Gbps"`.
        size: of one parameter vector: `"100MB"`; nothing unless given.
        parameters: how many there are, of four bytes each: `"25.6M"` is a size of 102.4 MB.
        batch: samples of a mini-batch, where `compute` depends on them.
        seed: of everything random.
        settings: further keys of the cluster and of one solver: `{"cluster.feeder": "1ms", "solver.backups": 2}`.
        dry_run: run nothing; return the rules, the budget and the whole cluster.
        progress: whether progress is shown; in a notebook and on a terminal unless given.
    """
    check_clock(engine)
    flags = {"compute": compute, "delay": delay, "latency": latency, "bandwidth": bandwidth, "service": service}
    counts = [] if workers is None else parse_counts(workers)
    machines, options = _cluster(cluster, flags, _with_server(settings, server), counts)
    rules = _rules(solvers, options)
    nbytes = vector_bytes(size, parameters)
    if dry_run:
        return _would_run(rules, machines, counts, budget)
    quiet = not (watched() if progress is None else progress)
    if not isinstance(workers, int | None):
        limit = None if budget is None else _limit(budget)
        with scaling_progress(len(counts) * (1 + len(rules)), quiet=quiet) as shown:
            sizes = {"nbytes": nbytes, "batch": batch}
            return scaling(machines, rules, counts, limit=limit, progress=shown, seed=seed, **sizes)
    limit = _limit(_BUDGET if budget is None else budget)
    found = {}
    for name, rule in rules.items():
        with time_progress(f"timing {name}", *reversed(next(iter(limit.items()))), quiet=quiet) as shown:
            found[name] = simulate(machines, rule, **limit, nbytes=nbytes, batch=batch, seed=seed, progress=shown)
    return Timings(found)


def check_clock(engine: str | None) -> None:
    """Refuses engines that compute."""
    if engine is not None and entry(engine) is not ENGINES["sim"]:
        nothing = f"it computes nothing that {engine} could run"
        raise ConfigError(f"the clock alone is simulated (engine sim), got {engine!r}: {nothing}")


def _limit(budget: str | Amount) -> dict[str, Any]:
    """A budget as `simulate` takes it."""
    amount = Amount.parse(budget, "budget")
    if amount.unit not in ("updates", "seconds"):
        raise ConfigError(f"budget must be in updates or virtual seconds here, got {budget!r}")
    return {amount.unit: int(amount.count) if amount.unit == "updates" else amount.count}


def _with_server(settings: Mapping[str, Any] | None, bandwidth: str | None) -> dict[str, Any]:
    """The settings, and the bandwidth of the server's link if it was given as a word."""
    return {**({} if bandwidth is None else {"cluster.server.bandwidth": bandwidth}), **(settings or {})}


def vector_bytes(size: str | int | None, parameters: str | int | None) -> int:
    """Bytes of one parameter vector, by its size or by the number of parameters."""
    if size is not None and parameters is not None:
        raise ConfigError("give size (in bytes) or parameters (of four bytes each), not both")
    if parameters is not None:
        return _BYTES * parse_count(parameters, "parameters")
    return size if isinstance(size, int) else parse_size(size or "0B", "size")


def _cluster(
    cluster: ClusterLike, flags: Mapping[str, Any], settings: Mapping[str, Any], counts: Sequence[int] = ()
) -> tuple[Cluster, dict[str, Any]]:
    """The cluster as it was described, and the options of the solver among the settings.

    Of several numbers of workers it has the largest, or its own if that is larger still.
    """
    if isinstance(cluster, Cluster):
        values = cluster.to_dict()
    elif isinstance(cluster, str | Path):
        values = copy.deepcopy(find_cluster(cluster))
    else:
        values = {
            **USUAL,
            **({} if cluster is None else {"workers": must_be(cluster, int, "cluster must be a number")}),
        }
    values |= {k: v if isinstance(v, str) else list(v) for k, v in flags.items() if v}
    options: dict[str, Any] = {}
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if section not in ("cluster", "solver") or not name:
            raise ConfigError(f"the clock alone takes the settings cluster.KEY and solver.KEY, got {key!r}")
        if section == "cluster":
            put(values, name, value)
        else:
            options[name] = value
    if counts:
        own = values.get("workers", 1) if len(counts) > 1 else 1
        values["workers"] = max(counts[-1], own if isinstance(own, int) else 1)
    return Cluster.parse(**values), options


def _rules(solvers: Solvers, options: dict[str, Any]) -> dict[str, Solver]:
    """The rules by name, ready to run."""
    if isinstance(solvers, str):
        given: list[SolverLike] = [n.strip() for n in solvers.split(",") if n.strip()]
    else:
        given = [solvers] if isinstance(solvers, type | Solver) else list(solvers)
    if not given:
        raise ConfigError(f"a solver's name, or several separated by commas, got {solvers!r}")
    if options and len(given) > 1:
        raise ConfigError("settings solver.KEY are for one solver, got several")
    made: dict[str, Solver] = {}
    for one in given:
        rule = one if isinstance(one, Solver) else rule_of(one, options)
        name = one if isinstance(one, str) else solver_name(one)
        rule.label = name  # type: ignore[attr-defined]
        made[name] = rule
    return made


def _would_run(
    rules: Mapping[str, Solver], machines: Cluster, counts: Sequence[int], budget: str | Amount | None
) -> DryRun:
    """The rules, the budget and the whole cluster."""
    told = {f"cluster.{key}": value for key, value in machines.to_dict().items()}
    if len(counts) > 1:
        told["cluster.workers"] = counts
    return DryRun({"solvers": ", ".join(rules), "budget": _said(budget, counts), **told})


def _said(budget: str | Amount | None, counts: Sequence[int]) -> str:
    if budget is None and len(counts) > 1:
        return f"{ROUNDS} gradients of each worker"
    amount = Amount.parse(_BUDGET if budget is None else budget, "budget")
    _limit(amount)  # which refuses what the clock cannot count
    return str(amount)
