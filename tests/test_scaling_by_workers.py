"""What more workers bring: against closed forms, and the reason that is told is the true one."""

import json
from math import inf
from pathlib import Path

import pytest

import offbeat
from offbeat.core.errors import ConfigError
from offbeat.engines.cluster import Cluster
from offbeat.lab.studies.bottleneck import NOTHING, in_step, only_computing, reason
from offbeat.lab.studies.more_workers import parse_counts, resized


def rates(found, solver):
    return {r["workers"]: r["samples_per_virtual_second"] for r in found.rows if r["solver"] == solver}


def test_numbers_of_workers_double_or_are_listed():
    assert parse_counts("1..16") == [1, 2, 4, 8, 16]
    assert parse_counts("3..20") == [3, 6, 12, 20]
    assert parse_counts("1,12,2..4") == [1, 2, 4, 12]
    assert parse_counts(7) == [7]
    assert parse_counts([8, 2]) == [2, 8]
    for wrong in ("0..4", "4..1", "", "many", "1..2000000", "-3", [], True, "1.5"):
        with pytest.raises(ConfigError, match="workers must be numbers from 1 to 1,000,000, such as 64"):
            parse_counts(wrong)


def test_a_server_that_serves_one_at_a_time_brings_no_more_than_that():
    """Workers of 100 ms, service of 10 ms: n / 0.11 up to 11 of them (a closed queue in step), 100 a second after."""
    found = offbeat.time("asgd", workers="1,2,4,8,16,32", compute="100ms", service="10ms")
    got = rates(found, "asgd")
    for n in (1, 2, 4, 8):
        assert got[n] == pytest.approx(n / 0.11, rel=0.02)
    for n in (16, 32):
        assert got[n] == pytest.approx(100, rel=0.02)
    assert [r["ideal"] for r in found.rows] == pytest.approx([10 * n for n in (1, 2, 4, 8, 16, 32)], rel=0.02)
    end = found.ends["asgd"]
    assert (end.workers, end.beyond) == (8, 16)
    assert end.reason.startswith("service")
    assert end.gain == pytest.approx(1.6, rel=0.02)
    assert found.verdict == [
        "asgd stops scaling at 8 workers, because of service (the server's time for each message): without it, 16 "
        "workers would bring 1.6 times as many samples a second."
    ]


def test_behind_a_barrier_throughput_is_that_of_the_slowest():
    """Exponential times: the slowest of n takes H(n) of the mean, so that n of them bring n / H(n)."""
    found = offbeat.time("sync", workers=[1, 2, 8, 32], compute="exponential(1s)", service="0s", budget="2000updates")
    for n, rate in rates(found, "sync").items():
        assert rate == pytest.approx(n / sum(1 / k for k in range(1, n + 1)), rel=0.05)


def test_a_barrier_is_named_where_everybody_waits_for_the_slowest():
    """Four machines of 1 s, then four of 10 s: all eight bring 0.8 a second, and 8 / 5.5 if they were even."""
    found = offbeat.time("sync,asgd", 8, workers="1..8", compute=["1s", "10s@4-7"], service="0s")
    assert rates(found, "sync") == pytest.approx({1: 1, 2: 2, 4: 4, 8: 0.8})
    end = found.ends["sync"]
    assert (end.workers, end.reason) == (4, "the barrier (everybody waits for the slowest)")
    assert end.gain == pytest.approx(10 / 5.5)
    assert found.ends["asgd"] is None


def test_a_rule_that_scales_to_the_end_is_said_to():
    found = offbeat.time("asgd", workers="1..8", compute="normal(1s, 0.1s)", service="0s")
    assert found.ends == {"asgd": None}
    assert found.verdict == ["asgd scales up to 8 workers, the most that were tried."]


def test_a_ring_of_many_is_stopped_by_latency():
    """2 (n - 1) messages of 5 ms one after another, and 10 ms of computing."""
    found = offbeat.time("allreduce", workers="1..64", compute="10ms", service="0s", latency="5ms")
    for n, rate in rates(found, "allreduce").items():
        assert rate == pytest.approx(n / (0.01 + 0.01 * (n - 1)))
    assert found.ends["allreduce"].reason == "latency"


def test_the_part_that_brings_most_is_the_reason():
    cluster = Cluster.parse(workers=2, bandwidth="1Gbps", latency="1ms", service="1ms")

    def run(other):
        return 3.0 if other.bandwidth == inf else 2.0 if other.latency == 0 else 1.0

    assert reason(cluster, 1.0, run) == ("the bandwidth of each worker's link", 3.0)
    assert reason(cluster, 1.0, lambda other: 1.0) == (NOTHING, 1.0)
    both = reason(cluster, 1.0, lambda other: 2.0 if other.bandwidth == inf and other.latency == 0 else 1.0)
    assert both == ("links and server together", 2.0)


def test_fewer_workers_leave_out_what_was_said_of_the_others():
    described = Cluster.parse(workers=8, compute=["1s", "2s@4-7", "3s@0"], delay="1s@7", events=["lose 6 at 1s"])
    found = resized(described, 5)
    assert found == Cluster.parse(workers=5, compute=["1s", "2s@4", "3s@0"])
    assert resized(described, 8) == described
    assert resized(described, 9).compute_of(8).mean == 1


def test_parts_are_made_free_one_by_one():
    described = Cluster.parse(
        workers=2, compute=["1s", "3s@1"], delay="2s@0", latency="1ms", bandwidth="1Gbps", service="1ms", feeder="1ms"
    )
    assert in_step(described).compute_of(0).mean == 3
    assert in_step(described).delay == ()
    free = only_computing(described)
    assert (free.compute, free.delay) == (described.compute, described.delay)
    assert free.transfer_time(10**9) == 0


def test_the_same_words_in_a_shell_say_the_same(shell, tmp_path):
    page = tmp_path / "scaling.html"
    words = ("--solvers", "sync,asgd", "--workers", "1..8", "--compute", "10ms", "--service", "4ms")
    code, out, err = shell("time", *words, "-o", page)
    assert code == 0, err
    found = offbeat.time("sync,asgd", workers="1..8", compute="10ms", service="4ms")
    for sentence in found.verdict:
        assert sentence in " ".join(out.split())
    assert "written to" in out
    text = page.read_text(encoding="utf-8")
    assert found.verdict[0].replace("'", "&#x27;") in text
    code, out, _ = shell("time", *words, "--json")
    assert json.loads(out)["verdict"] == found.verdict
    assert found.table.num_rows == 8
    assert "<iframe" in found._repr_html_()


def test_pictures_are_two(tmp_path):
    found = offbeat.time("asgd", workers=[1, 2, 4], compute="10ms", service="4ms")
    for suffix in ("png", "svg"):
        assert found.save(tmp_path / f"s.{suffix}") == [tmp_path / f"s.{suffix}", tmp_path / f"s-waiting.{suffix}"]
        assert all(path.stat().st_size > 1000 for path in tmp_path.glob(f"*.{suffix}"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--workers", "8..2"),
            "workers must be numbers from 1 to 1,000,000, such as 64, 1..4096 or 1,2,12, got '8..2'",
        ),
        (
            ("--workers", "8", "-o", "x.html"),
            "--out draws several numbers of workers, such as --workers 1..4096, got 8",
        ),
        (("--workers", "1..8", "-o", "x.txt"), "--out must be .html, .svg, .png or .pdf, got 'x.txt'"),
        (
            ("--workers", "1..8", "--budget", "3epochs"),
            "budget must be in updates or virtual seconds here, got '3epochs'",
        ),
    ],
)
def test_bad_words_are_one_line(shell, words, said):
    code, _, err = shell("time", *words)
    assert code == 2
    assert err == f"offbeat: {said}\n"
    assert not list(Path().glob("x.*"))
