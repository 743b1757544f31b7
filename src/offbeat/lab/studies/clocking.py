"""`offbeat.time`: the clock alone, for one rule or for several on one cluster."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from offbeat.core.budget import Amount
from offbeat.core.errors import ConfigError
from offbeat.core.solver import Solver
from offbeat.core.units import parse_size
from offbeat.engines.cluster import Cluster
from offbeat.lab.arguments import ClusterLike, SolverLike, must_be
from offbeat.lab.clusters import find_cluster
from offbeat.lab.config.objects import solver_name
from offbeat.lab.runs.folder import metrics_table
from offbeat.lab.studies.timing import Timed, rule_of, simulate
from offbeat.progress import time_progress, watched

USUAL: Mapping[str, Any] = {"workers": 100, "compute": "normal(1s, 0.2s)", "service": "1ms"}
"""The cluster where nobody says which."""
COLUMNS = (
    "solver",
    "samples_per_virtual_second",
    "updates_per_virtual_second",
    "mean_staleness",
    "computing_share",
    "idle_share",
)


@dataclass(frozen=True)
class Timings:
    """What the clock alone says of each rule; `table` has a row for each, `timed` all there is to know of one."""

    timed: Mapping[str, Timed]
    """By solver, in the order in which they were named."""

    @property
    def summaries(self) -> list[dict[str, Any]]:
        """Throughput, staleness, idle time, queueing: one dict a rule."""
        return [found.summary for found in self.timed.values()]

    @property
    def table(self) -> pa.Table:
        """One row a rule. Samples a second compare them: an update is of one gradient, or of many."""
        return metrics_table(self.summaries)

    def __repr__(self) -> str:
        rates = ((s["solver"], s["samples_per_virtual_second"]) for s in self.summaries)
        return ", ".join(f"{name}: {rate or 0:,.4g} samples a virtual second" for name, rate in rates)

    def _repr_html_(self) -> str:
        from offbeat.report.notebook import html_table

        return html_table(
            [name.replace("_", " ") for name in COLUMNS], [[s[n] for n in COLUMNS] for s in self.summaries]
        )


def time(
    solvers: SolverLike | Sequence[SolverLike] = "asgd",
    cluster: ClusterLike = None,
    *,
    budget: str | Amount = "10000updates",
    compute: str | Iterable[str] | None = None,
    delay: str | Iterable[str] | None = None,
    latency: str | None = None,
    bandwidth: str | None = None,
    service: str | None = None,
    size: str | int = "0B",
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    progress: bool | None = None,
) -> Timings:
    """The clock alone, without gradients: throughput, staleness, idle time, queueing; `offbeat time` is the same.

    Args:
        solvers: a rule or several: names (`"sync,asgd"`), classes or objects.
        cluster: so many workers, a `Cluster`, or a file with a `[cluster]` section; 100 workers unless given, whose
            batches take normal(1s, 0.2s) and whose server takes 1 ms a message.
        budget: `"10000updates"` or `"60s"` (virtual).
        compute: the time of a mini-batch, of all or by worker: `["10ms", "40ms@0"]`.
        delay: extra delay of a mini-batch, likewise: `"30ms@0"`.
        latency: of one message, each way.
        bandwidth: of a worker's link: `"10Gbps"`.
        service: what the server takes for one message.
        size: of one parameter vector: `"100MB"`.
        seed: of everything random.
        settings: further keys of the cluster and of one solver: `{"cluster.feeder": "1ms", "solver.backups": 2}`.
        progress: whether progress is shown; in a notebook and on a terminal unless given.
    """
    flags = {"compute": compute, "delay": delay, "latency": latency, "bandwidth": bandwidth, "service": service}
    machines, options = _cluster(cluster, flags, settings or {})
    rules = _rules(solvers, options)
    amount = Amount.parse(budget, "budget")
    if amount.unit not in ("updates", "seconds"):
        raise ConfigError(f"budget must be in updates or virtual seconds here, got {budget!r}")
    limit: dict[str, Any] = {amount.unit: int(amount.count) if amount.unit == "updates" else amount.count}
    nbytes = size if isinstance(size, int) else parse_size(size, "size")
    quiet = not (watched() if progress is None else progress)
    found = {}
    for name, rule in rules.items():
        with time_progress(f"timing {name}", amount.count, amount.unit, quiet=quiet) as shown:
            found[name] = simulate(machines, rule, **limit, nbytes=nbytes, seed=seed, progress=shown)
    return Timings(found)


def _cluster(
    cluster: ClusterLike, flags: Mapping[str, Any], settings: Mapping[str, Any]
) -> tuple[Cluster, dict[str, Any]]:
    """The cluster as it was described, and the options of the solver among the settings."""
    if isinstance(cluster, Cluster):
        values = cluster.to_dict()
    elif isinstance(cluster, str | Path):
        values = find_cluster(cluster)
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
        (values if section == "cluster" else options)[name] = value
    return Cluster.parse(**values), options


def _rules(solvers: SolverLike | Sequence[SolverLike], options: dict[str, Any]) -> dict[str, Solver]:
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


def what_would_run(
    solvers: SolverLike | Sequence[SolverLike],
    cluster: ClusterLike,
    budget: str | Amount,
    flags: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The rules, the budget and the whole cluster, without running anything."""
    machines, options = _cluster(cluster, flags, settings)
    told = {f"cluster.{key}": value for key, value in machines.to_dict().items()}
    return {"solvers": ", ".join(_rules(solvers, options)), "budget": str(Amount.parse(budget, "budget")), **told}
