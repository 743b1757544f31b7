"""The recorded times of a real run, played again by the simulator: its calls come in the order in which they came."""

import pyarrow.parquet as pq
import pytest

from offbeat.core.errors import ConfigError
from offbeat.engines.cluster import Cluster
from offbeat.folders.run_files import RunFiles
from offbeat.lab.config import make
from offbeat.lab.engines import ForTests
from offbeat.lab.fitting.playback import as_csv, played_times
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.studies.timing import simulate

WORKERS = 3


def real_run(path, launcher, solver, **more):
    values = {"task": {"name": "quadratic"}, "solver": {"name": solver}, "cluster": {"workers": WORKERS}}
    values |= {"budget": {"updates": 120 if solver != "sync" else 40}, "engine": "local", **more}
    return execute(build(make(values)), path, for_tests=ForTests(launcher))


def calls(path):
    table = pq.read_table(path / "arrivals.parquet").to_pylist()
    return [(row["time"], row["worker"]) for row in table if row["what"] == "call"]


@pytest.mark.parametrize("solver", ["asgd", "dc-asgd", "sync", "staleness-aware"])
def test_the_simulated_order_of_arrivals_is_the_real_one(tmp_path, launcher, solver):
    run = real_run(tmp_path / "run", launcher, solver)
    (tmp_path / "times.csv").write_text(as_csv(played_times(RunFiles.open(run.path))))
    cluster = Cluster.parse(workers=WORKERS, compute=f"trace({tmp_path / 'times.csv'})")
    timed = simulate(cluster, solver, updates=run.summary["updates"])
    applied = [row for row in timed.trace.to_pylist() if row["applied"]]
    arrived = sorted((row["computed"], row["worker"]) for row in applied)
    real = calls(run.path)[: len(arrived)]
    assert len(arrived) >= 120
    assert [worker for _, worker in arrived] == [worker for _, worker in real]
    assert [time for time, _ in arrived] == pytest.approx([time for time, _ in real], abs=1e-9)


def test_the_shell_writes_times_that_a_cluster_plays(tmp_path, launcher, shell):
    real_run(tmp_path / "run", launcher, "asgd")
    code, _, err = shell("calibrate", tmp_path / "run", "--times", "times.csv")
    assert code == 0, err
    words = ("--workers", WORKERS, "--compute", "trace(times.csv)", "--service", "0s", "--budget", "120updates")
    code, _, err = shell("time", *words)
    assert code == 0, err
    code, _, err = shell("time", "--workers", WORKERS + 1, *words[2:])
    assert (code, err.count("\n")) == (2, 1)
    assert f"has times of {WORKERS} workers, one in each column, but {WORKERS + 1} need them" in err


def test_what_cannot_be_played_is_told(tmp_path, launcher):
    run = real_run(tmp_path / "run", launcher, "allreduce")
    with pytest.raises(
        ConfigError, match="only of rules whose workers ask for gradients and the server, got allreduce"
    ):
        played_times(RunFiles.open(run.path))
