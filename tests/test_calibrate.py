"""A cluster fitted to a run: recovered exactly where the run's times are known."""

import json
from dataclasses import replace

import pytest

from offbeat.core.errors import ConfigError
from offbeat.engines.cluster import Cluster
from offbeat.lab.config import make
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.folder import arrivals_table
from offbeat.lab.runs.plan import build
from offbeat.lab.studies.calibrate import as_toml, calibrate, check, compute_times, latency, predicted


def disguised(path, **cluster):
    """A simulated run that is passed off as a real one: then what must be found is known."""
    values = {"task": {"name": "quadratic"}, "solver": {"name": "asgd"}, "budget": {"updates": 400}}
    run = execute(build(make({**values, "cluster": cluster})), path)
    info = json.loads((path / "run.json").read_text())
    info["clock"] = "wall"
    info["summary"]["wall_seconds"] = info["summary"]["virtual_seconds"]
    info["summary"]["samples_per_second"] = run.summary["samples"] / run.summary["virtual_seconds"]
    (path / "run.json").write_text(json.dumps(info))
    latency = run.config["cluster"]["latency"]
    assert latency.endswith("ms")
    rows = [r for r in run.trace.to_pylist() if r["draw"] is not None]
    calls = [(r["computed"] + float(latency[:-2]) / 1000, "call", r["worker"], 0) for r in rows]
    from offbeat.lab.runs.folder import Folder

    Folder(path).write_table("arrivals.parquet", arrivals_table(sorted(calls)))
    return run


def test_times_that_are_known_are_found_again(tmp_path):
    disguised(
        tmp_path / "run",
        workers=3,
        compute=["lognormal(10ms, 2ms)", "lognormal(30ms, 3ms)@2"],
        delay=["5ms@1", "normal(4ms, 1ms)@1"],
        latency="2ms",
        service="0.5ms",
    )
    found = calibrate(tmp_path / "run")
    assert found.workers == 3
    assert found.compute_of(0).mean == pytest.approx(0.010, rel=0.03)
    assert found.compute_of(0).std == pytest.approx(0.002, rel=0.25)
    assert found.compute_of(1) == found.compute_of(0)  # its delay is no part of its computing
    assert found.compute_of(2).mean == pytest.approx(0.030, rel=0.03)
    assert found.latency == pytest.approx(0.002, rel=0.05)
    assert found.service.mean == pytest.approx(0.0005, rel=0.05)
    assert [str(d) for d in found.delay] == ["5ms@1", "normal(4ms, 1ms)@1"]


def test_what_is_found_predicts_the_run_it_came_from(tmp_path):
    disguised(tmp_path / "run", workers=2, compute="lognormal(10ms, 2ms)", latency="1ms", service="0.5ms")
    found = check(calibrate(tmp_path / "run"), tmp_path / "run", target="loss=1.0")
    assert abs(found["samples_per_second"]["off_percent"]) < 5
    assert abs(found["mean_staleness"]["off_percent"]) < 5
    assert abs(found["time_to_loss=1.0"]["off_percent"]) < 30


def test_a_crowd_of_workers_shares_the_cores(monkeypatch):
    monkeypatch.setattr("offbeat.lab.studies.calibrate.cores", lambda: 2)
    one = Cluster.parse(workers=2, compute="lognormal(10ms, 2ms)", latency="1ms")
    found = predicted(one, Cluster.parse(workers=6, delay=["3ms@5"]))
    assert found.compute_of(0).mean == pytest.approx(0.030)
    assert found.workers == 6
    assert found.latency == 0.001
    assert [str(d) for d in found.delay] == ["3ms@5"]


def test_the_cluster_is_written_so_that_a_run_can_read_it():
    import tomllib

    cluster = Cluster.parse(workers=3, compute=["lognormal(10ms, 2ms)", "lognormal(30ms, 3ms)@2"], latency="1.5ms")
    assert Cluster.parse(**tomllib.loads(as_toml(cluster))["cluster"]) == cluster


def test_a_simulated_run_teaches_nothing_about_a_machine(tmp_path):
    values = {"task": {"name": "quadratic"}, "budget": {"updates": 30}, "cluster": {"workers": 2}}
    execute(build(make(values)), tmp_path / "run")
    with pytest.raises(ConfigError, match="no wall times"):
        calibrate(tmp_path / "run")


def test_pieces_without_calls_give_no_latency():
    assert latency([], [], 0.0) == 0.0
    assert compute_times([], replace(Cluster(), workers=1), 0) == {}
