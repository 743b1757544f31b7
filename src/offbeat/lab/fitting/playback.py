"""The times of a real run, so that a simulation that plays them (`trace(times.csv)`) has its arrivals in its order."""

from bisect import bisect_left
from itertools import zip_longest

from offbeat.core.errors import ConfigError
from offbeat.engines.replay import SERIAL
from offbeat.folders.run_files import RunFiles, rows
from offbeat.lab.fitting.evidence import cluster_of, overlaps
from offbeat.solvers import SOLVERS, solver_class


def played_times(run: RunFiles) -> list[list[float]]:
    """For each worker, seconds from an answer of the server to its next call being heard, messages included.

    Played on a cluster without latency, service and delay, they bring every call to the server when it came. It holds
    for rules that answer at once or, behind a barrier, when a gradient is applied.
    """
    if run.solver not in SOLVERS or not solver_class(run.solver).asks <= SERIAL:
        raise ConfigError(f"{run.path}: only of rules whose workers ask for gradients and the server, got {run.solver}")
    if overlaps(run):
        raise ConfigError(
            f"{run.path}: its workers computed while messages were under way, so its times cannot be played"
        )
    workers = cluster_of(run).workers
    heard: list[list[float]] = [[] for _ in range(workers)]
    for entry in rows(run.arrivals(), "time", "what", "worker"):
        if entry["what"] == "lost":
            raise ConfigError(f"{run.path} has lost worker {entry['worker']}: its times cannot be played")
        if entry["what"] == "call":
            heard[entry["worker"]].append(entry["time"])
    applied: list[list[float]] = [[] for _ in range(workers)]
    for row in rows(run.trace(), "worker", "draw", "applied", "time"):
        if row["applied"]:
            applied[row["worker"]].append(row["time"])
    everybody = sorted(time for calls in heard for time in calls)
    found = []
    for calls, times in zip(heard, applied, strict=True):
        # A row has the time at which the server took up the call that applied it; the journal has that call next.
        answered = [0.0, *(everybody[bisect_left(everybody, t)] for t in sorted(times) if t <= everybody[-1])]
        found.append([call - before for call, before in zip(calls, answered, strict=False)])
    if not all(found):
        raise ConfigError(f"{run.path}: every worker needs a call, got none of worker {found.index([])}")
    return found


def as_csv(columns: list[list[float]]) -> str:
    """One column a worker, with every digit."""
    names = ",".join(f"worker {k}" for k in range(len(columns)))
    lines = (",".join("" if t is None else repr(t) for t in row) for row in zip_longest(*columns))
    return "\n".join([names, *lines]) + "\n"
