"""A cluster fitted to a run: recovered exactly where the run's times are known."""

import json

import numpy as np
import pytest

from offbeat.core.errors import ConfigError
from offbeat.core.units import parse_duration
from offbeat.engines.cluster import Cluster
from offbeat.lab.config import make
from offbeat.lab.fitting.evidence import Evidence, compute_times
from offbeat.lab.fitting.exchanges import fit_exchanges
from offbeat.lab.fitting.transfers import transfers
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.folder import arrivals_table
from offbeat.lab.runs.plan import build
from offbeat.lab.studies.calibrate import calibrate, machine
from offbeat.lab.studies.prediction import check


def disguised(path, *, engine="ray", solver="asgd", batch=1, updates=400, seed=0, **cluster):
    """A simulated run that is passed off as a real one: then what must be found is known."""
    values = {"task": {"name": "quadratic"}, "solver": {"name": solver}, "budget": {"updates": updates}}
    values |= {"data": {"batch": batch}, "seed": seed}
    run = execute(build(make({**values, "cluster": cluster})), path)
    info = json.loads((path / "run.json").read_text())
    info["clock"], info["engine"] = "wall", engine
    info["summary"]["wall_seconds"] = info["summary"]["virtual_seconds"]
    info["summary"]["samples_per_second"] = run.summary["samples"] / run.summary["virtual_seconds"]
    (path / "run.json").write_text(json.dumps(info))
    latency = parse_duration(run.config["cluster"]["latency"])
    rows = [r for r in run.trace.to_pylist() if r["draw"] is not None]
    calls = [(r["computed"] + latency, "call", r["worker"], 0) for r in rows]
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
    found = calibrate([tmp_path / "run"]).cluster
    assert found.workers == 3
    assert found.mean_compute(0, 1) == pytest.approx(0.010, rel=0.03)
    assert found.compute_of(0).noise.std == pytest.approx(0.17, rel=0.25)  # two of three have 0.2, one has 0.1
    assert found.mean_compute(1, 1) == found.mean_compute(0, 1)  # its delay is no part of its computing
    assert found.mean_compute(2, 1) == pytest.approx(0.030, rel=0.03)
    assert found.latency == pytest.approx(0.002, rel=0.05)
    assert found.service.mean == pytest.approx(0.0005, rel=0.05)
    assert [str(d) for d in found.delay] == ["5ms@1", "normal(4ms, 1ms)@1"]


def local(monkeypatch, count=2):
    """The machine has so many cores."""
    monkeypatch.setattr("offbeat.lab.studies.calibrate.cores", lambda: count)


def test_compute_by_batch_size_is_found_from_two_sizes(tmp_path):
    for batch in (8, 64):
        compute = "(2ms + 0.12ms/sample) * lognormal(1, 0.1)"
        disguised(tmp_path / f"b{batch}", batch=batch, workers=2, compute=compute, latency="1ms")
    found = calibrate([tmp_path / "b8", tmp_path / "b64"])
    assert found.computing.base == pytest.approx(0.002, rel=0.05)
    assert found.computing.per_sample == pytest.approx(0.00012, rel=0.05)
    assert found.noise.spread == pytest.approx(0.1, rel=0.1)
    assert not any("batch size" in said for said in found.unknown)
    one = calibrate([tmp_path / "b8"])
    assert "compute per batch size: all batches are of 8 samples" in one.unknown
    assert one.computing.base == pytest.approx(0.00296, rel=0.02)


def test_cores_that_are_shared_are_found_from_a_crowd(tmp_path, monkeypatch):
    local(monkeypatch)
    words = {"engine": "local", "compute": "normal(10ms, 0.5ms)", "latency": "0.01ms", "cores": 2}
    for workers in (2, 6):
        disguised(tmp_path / f"w{workers}", workers=workers, **words)
    found = calibrate([tmp_path / "w2", tmp_path / "w6"])
    assert found.computing.base == pytest.approx(0.01, rel=0.02)
    assert found.computing.cores == pytest.approx(2, rel=0.02)
    assert found.cluster.cores == 2
    few = calibrate([tmp_path / "w2"])
    assert "core sharing: no run has more workers than cores; 2 cores are assumed" in few.unknown
    many = calibrate([tmp_path / "w6"])
    assert "core sharing: all runs have more workers than cores; 2 cores are assumed" in many.unknown
    assert many.computing.base == pytest.approx(0.01, rel=0.02)
    alone = calibrate([disguised(tmp_path / "ray", **{**words, "engine": "ray"}, workers=2) and tmp_path / "ray"])
    assert alone.cluster.cores is None  # machines of their own share nothing


def test_slowness_with_a_memory_is_found_and_noise_without_one_is_not_taken_for_it(tmp_path):
    words = {"workers": 2, "compute": "lognormal(10ms, 0.5ms)", "latency": "0.1ms", "updates": 8000}
    disguised(tmp_path / "slow", slow="3x for exp(1s) every exp(4s)", **words)
    found = calibrate([tmp_path / "slow"])
    spells = found.noise.spells
    assert found.noise.autocorrelation[0] > 0.8
    assert spells.factor == pytest.approx(3, rel=0.05)
    assert spells.slow_seconds == pytest.approx(1, rel=0.35)
    assert spells.usual_seconds == pytest.approx(4, rel=0.35)
    assert found.noise.spread == pytest.approx(0.05, rel=0.5)
    assert found.cluster.mean_compute(0, 1) == pytest.approx(found.computing.base, rel=0.01)
    disguised(tmp_path / "noisy", **{**words, "compute": "lognormal(10ms, 6ms)"})
    assert calibrate([tmp_path / "noisy"]).noise.spells is None


def test_latency_and_bandwidth_are_told_apart_by_two_sizes():
    """way = L + N / B; the sum of W workers = 2 (W - 1) (L + N / W / B)."""

    def evidence(nbytes, workers=2, **times):
        return Evidence("x", "ray", workers, (), nbytes=nbytes, **{k: np.full(5, v) for k, v in times.items()})

    L, B = 0.001, 1e8
    server = [evidence(n, ways=L + n / B) for n in (10_000, 1_000_000)]
    ring = [evidence(10**6, w, sums=2 * (w - 1) * (L + 10**6 / w / B)) for w in (2, 4)]
    for known in (server, ring, [server[1], ring[0]]):
        found = fit_exchanges(known)
        assert found.latency == pytest.approx(L)
        assert found.bandwidth == pytest.approx(B)
    one = fit_exchanges(server[:1])
    assert one.latency == pytest.approx(L + 10_000 / B)
    assert "bandwidth: all messages are of one size, and what they take is in the latency" in one.unknown
    assert fit_exchanges([evidence(8, turns=0.004)]).memory == pytest.approx(0.002)
    assert fit_exchanges([evidence(8)]).unknown[0].startswith("latency and bandwidth")


def test_the_noise_between_equal_runs_is_measured(tmp_path):
    words = {"workers": 2, "latency": "1ms"}
    for k, mean in enumerate((9, 10, 11)):
        disguised(tmp_path / f"r{k}", compute=f"normal({mean}ms, 0.1ms)", seed=k, **words)
    found = calibrate([tmp_path / f"r{k}" for k in range(3)])
    assert found.noise.between == pytest.approx(0.1, rel=0.05)
    assert found.computing.base == pytest.approx(0.01, rel=0.01)


def test_a_cluster_that_was_fitted_predicts_what_it_was_not_fitted_to(tmp_path, monkeypatch):
    local(monkeypatch)
    words = {"engine": "local", "compute": "(2ms + 0.1ms/sample) * lognormal(1, 0.1)", "latency": "0.3ms", "cores": 2}
    words |= {"service": "0.2ms"}
    known = [(1, 32), (2, 64), (4, 32)]
    for workers, batch in known:
        disguised(tmp_path / f"{workers}-{batch}", workers=workers, batch=batch, **words)
    found = calibrate([tmp_path / f"{workers}-{batch}" for workers, batch in known])
    for solver, workers, batch in (("asgd", 3, 16), ("sync", 2, 32), ("sync", 4, 64)):
        place = tmp_path / f"{solver}-{workers}-{batch}"
        disguised(place, solver=solver, workers=workers, batch=batch, updates=300, **words)
        assert abs(check(found, place)["samples_per_second"]["off_percent"]) < 5


def test_the_page_shows_the_fit_beside_the_data(tmp_path, shell):
    words = {"workers": 2, "latency": "1ms"}
    for batch in (8, 64):
        disguised(tmp_path / f"b{batch}", batch=batch, compute="2ms + 0.1ms/sample", **words)
    code, out, err = shell("calibrate", tmp_path / "b8", tmp_path / "b64", "--report", "fit.html", "--out", "c.toml")
    assert code == 0, err
    assert "cannot tell service" not in out
    assert "cannot tell memory: no run shares a vector without a lock" in out
    page = (tmp_path / "fit.html").read_text(encoding="utf-8")
    assert "What times remember" in page
    assert "These runs cannot tell memory" in page
    code, out, err = shell("time", "--cluster", "c.toml", "--batch", 32, "--budget", "100updates", "--json")
    assert code == 0, err
    assert json.loads(out)["workers"] == 2


def test_what_is_found_predicts_the_run_it_came_from(tmp_path):
    disguised(tmp_path / "run", workers=2, compute="lognormal(10ms, 2ms)", latency="1ms", service="0.5ms")
    found = check(calibrate([tmp_path / "run"]), tmp_path / "run", target="loss=1.0")
    assert abs(found["samples_per_second"]["off_percent"]) < 5
    assert abs(found["mean_staleness"]["off_percent"]) < 5
    assert abs(found["time_to_loss=1.0"]["off_percent"]) < 30


def test_a_simulated_run_teaches_nothing_about_a_machine(tmp_path):
    values = {"task": {"name": "quadratic"}, "budget": {"updates": 30}, "cluster": {"workers": 2}}
    execute(build(make(values)), tmp_path / "run")
    with pytest.raises(ConfigError, match="no wall times"):
        calibrate([tmp_path / "run"])


def test_pieces_without_calls_give_no_latency():
    assert transfers([], [], 0.0) == []
    assert compute_times([], Cluster(workers=1), 0) == []


def test_what_a_crowd_needs_cores_for_is_found(tmp_path, monkeypatch):
    """A machine whose cores are for everything, in turns, is told from one whose cores are for computing alone."""
    local(monkeypatch)
    words = {"engine": "local", "compute": "lognormal(5ms, 0.5ms)", "latency": "0.5ms", "service": "0.5ms", "cores": 2}
    kinds = {"computing": {}, "everything": {"cores_for": "everything", "slice": "exponential(4ms)"}}
    for name, how in kinds.items():
        for workers in (1, 2, 5):
            disguised(tmp_path / f"{name}-{workers}", workers=workers, updates=600, **words, **how)
        found = calibrate([tmp_path / f"{name}-{workers}" for workers in (1, 2, 5)])
        sharing = found.crowd.sharing
        assert (sharing.cores, sharing.cores_for) == (2, name)
        assert (found.cluster.cores, found.cluster.cores_for) == (2, name)
        assert found.crowd.off < 0.05
        if name == "everything":
            assert 0.002 <= sharing.slice <= 0.008
            assert found.cluster.slice.mean == sharing.slice
            disguised(tmp_path / "other", workers=3, updates=400, solver="sync", **words, **how)
            assert abs(check(found, tmp_path / "other")["samples_per_second"]["off_percent"]) < 6
        else:
            assert sharing.slice == 0
    few = calibrate([tmp_path / "everything-2"])
    assert few.cluster.cores_for == "everything"
    assert "slice: likewise; equal shares are assumed" in few.unknown


def test_what_a_machine_of_its_own_cannot_have_is_left_out(tmp_path, monkeypatch):
    """A server with a link of its own is another machine: then cores are for computing."""
    local(monkeypatch)
    words = {"engine": "local", "compute": "5ms", "latency": "0.5ms", "service": "0.5ms"}
    for workers in (1, 2):
        disguised(tmp_path / f"{workers}", workers=workers, **words)
    found = calibrate([tmp_path / "1", tmp_path / "2"])
    theirs = Cluster.parse(workers=4, server={"bandwidth": "1Gbps"})
    made = machine(found.computing, found.noise, found.exchanges, found.crowd.sharing, theirs)
    assert (made.cores, made.cores_for, made.server) == (2, "computing", theirs.server)
