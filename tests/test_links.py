"""Slow links between hosts: what is run on them, what is fitted to messages that met, and what the page says."""

import os
import signal
import subprocess
import sys
from math import inf

import msgspec
import numpy as np
import pytest

from offbeat.core.errors import ConfigError
from offbeat.core.units import parse_rate
from offbeat.engines.cluster import Cluster
from offbeat.engines.cluster.server import ServerMachine
from offbeat.lab.config import make
from offbeat.lab.fitting.evidence import Evidence, Series, compute_times
from offbeat.lab.fitting.exchanges import fit_exchanges
from offbeat.lab.fitting.shared_link import would_take
from offbeat.lab.fitting.transfers import Transfer, alone, most_at_once, transfers, unqueued
from offbeat.lab.runs.plan import build
from offbeat.lab.studies.calibrate import as_toml, fit
from offbeat.lab.studies.timing import simulate
from offbeat.lab.validation.cases import chosen
from offbeat.lab.validation.link_cases import LINK_CASES, NARROW, SHARED, for_tc
from offbeat.lab.validation.measuring import CaseRuns, Conditions
from offbeat.lab.validation.namespaces import obstacle
from offbeat.lab.validation.on_slow_links import FoundLinks, found_links, on_the_processor
from offbeat.lab.validation.outcome import of_timed
from offbeat.lab.validation.predicting import Prediction, compare
from offbeat.lab.validation.validate import FILE, Validation, load, validate_links
from oracles.sharing import equal_shares
from oracles.sharing import first_come as in_order
from processes import alive as running
from processes import descendants, until

SIZE, LATENCY, OWN = 600_000, 0.002, 12.5e6


# -- what is run ------------------------------------------------------------------------------------------------------


def test_the_cases_are_in_two_halves_for_each_kind_of_links():
    for links in (NARROW, SHARED):
        mine = [c for c in LINK_CASES if c.links == links]
        fitted, predicted = ([c for c in mine if c.half == half] for half in ("fit", "predict"))
        assert len(fitted) == len(predicted) == 4
        assert {c.solver for c in predicted} == {"asgd", "sync"}
        assert {c.parameters for c in fitted} == {c.parameters for c in predicted}, "two sizes of messages"
        assert {c.trained for c in predicted} <= {c.trained for c in fitted}
        assert any(c.crowd.more == 1 for c in fitted), "messages that have the way to themselves"
    assert len({c.name for c in LINK_CASES}) == len(LINK_CASES)
    same = {tuple(map(str, [c.links, *c.values(2, 1.0, 0, "ray").items()])) for c in LINK_CASES}
    assert len(same) == len(LINK_CASES), "no case is in both halves"


def test_one_kind_of_links_is_never_full_at_the_server_and_the_other_is_with_two_workers():
    most = max(c.crowd.more for c in LINK_CASES)
    assert most * parse_rate(NARROW.worker) < parse_rate(NARROW.server)
    assert parse_rate(SHARED.worker) < parse_rate(SHARED.server) < 2 * parse_rate(SHARED.worker)


@pytest.mark.parametrize("case", LINK_CASES, ids=lambda c: c.name)
def test_every_case_can_be_built(case):
    plan = build(make(case.values(2, 1.0, 0, "ray")))
    assert plan.cluster.workers == case.workers(2) == case.workers(64), "whatever the cores"
    assert plan.task.layout.size == pytest.approx(case.parameters, rel=0.02)


def test_rates_are_told_to_tc_in_bits():
    assert for_tc("20Mbps") == "20000000bit"
    assert for_tc("1MB/s") == "8000000bit"


# -- what is fitted ---------------------------------------------------------------------------------------------------


def met(sharing, total, size=SIZE, workers=2, seed=0, many=150, own=OWN):
    """Messages that set out at random, and what becomes of them on a link that is known: computed by the oracles."""
    rng = np.random.default_rng(seed)
    moved = []
    for out in (False, True):
        sent = np.sort(rng.uniform(0, many * size / min(own, total), many))
        begins = [(t + LATENCY, float(size)) for t in sent]
        if sharing == "fair":
            ends = equal_shares(begins, total, own)
        else:
            passed = in_order(begins, total)
            ends = [max(end, t + size / own) for (t, _), end in zip(begins, passed, strict=True)]
        pairs = zip(sent, ends, strict=True)
        moved += [Transfer(k % workers, out, float(t), float(end)) for k, (t, end) in enumerate(pairs)]
    return Evidence("x", "ray", workers, (), "asgd", nbytes=size, calls=many, moved=moved)


@pytest.mark.parametrize("sharing", ["fifo", "fair"])
@pytest.mark.parametrize("times", [1.2, 1.5, 2.0])
def test_a_link_that_is_known_is_found_again(sharing, times):
    known = [met(sharing, times * OWN), met(sharing, times * OWN, SIZE // 3, seed=1)]
    found = fit_exchanges(known)
    assert found.latency == pytest.approx(LATENCY, rel=0.05)
    assert found.bandwidth == pytest.approx(OWN, rel=0.01)
    assert found.server.bandwidth == pytest.approx(times * OWN, rel=0.02)
    assert found.server.sharing == sharing
    assert not any(said.startswith(("latency", "bandwidth", "server")) for said in found.unknown)


@pytest.mark.parametrize("sharing", ["fifo", "fair"])
def test_what_a_message_would_take_is_what_the_oracle_says(sharing):
    known = met(sharing, 1.5 * OWN)
    would = would_take(known, LATENCY, OWN, ServerMachine(1.5 * OWN, sharing))
    assert would == pytest.approx([t.seconds for t in known.moved], rel=1e-9)


def test_a_link_that_is_never_full_is_not_found_and_that_is_said():
    known = [met("fair", 100 * OWN, size) for size in (SIZE, SIZE // 3)]
    found = fit_exchanges(known)
    assert found.server is None
    assert found.bandwidth == pytest.approx(OWN, rel=0.01)
    at_once = max(most_at_once(e.moved) for e in known)
    (said,) = [s for s in found.unknown if s.startswith("server.bandwidth")]
    assert f"{at_once} messages at once were as fast as one alone, at least" in said


def test_messages_that_scatter_say_nothing_about_how_wide_a_link_is_at_least():
    """Held up by chance, and not by each other: no width explains it, and none is claimed."""
    rng = np.random.default_rng(0)
    known = []
    for size in (SIZE, SIZE // 3):
        takes = LATENCY + size / OWN
        single = [Transfer(0, False, 1.0 * k, 1.0 * k + takes) for k in range(50)]
        held_up = [t._replace(there=t.there + rng.exponential(takes)) for t in met("fair", 100 * OWN, size).moved]
        known += [Evidence("x", "ray", n, (), nbytes=size, moved=moved) for n, moved in ((1, single), (2, held_up))]
    found = fit_exchanges(known)
    assert found.server is None
    (said,) = [s for s in found.unknown if s.startswith("server.bandwidth")]
    assert "no link explains that" in said
    assert "at least" not in said


def test_where_the_server_s_link_is_the_narrow_one_a_worker_s_own_is_not_known():
    """A message alone takes N / B, whatever its worker's link is."""
    total = OWN / 3
    found = fit_exchanges([met("fair", total, size) for size in (SIZE, SIZE // 3)])
    assert found.server.bandwidth == pytest.approx(total, rel=0.02)
    assert found.server.sharing == "fair"
    assert found.bandwidth == inf
    assert any("the server's link is the narrow one" in said for said in found.unknown)


def test_one_size_tells_no_latency_and_one_worker_no_server():
    one = fit_exchanges([met("fair", 1.5 * OWN)])
    assert one.latency == 0
    assert one.bandwidth == pytest.approx(SIZE / (LATENCY + SIZE / OWN), rel=0.01)
    assert "latency: all messages are of one size, and what they take is in the bandwidth" in one.unknown
    single = met("fair", 1.5 * OWN)
    lonely = Evidence("x", "ray", 1, (), nbytes=SIZE, moved=alone(single.moved))
    found = fit_exchanges([lonely])
    assert found.server is None
    assert "server.bandwidth: no two messages went the same way together" in found.unknown


def test_where_no_message_was_alone_all_is_put_down_to_the_server_s_link():
    """Three that always set out together, each with a third of the link."""
    total = 1.2e7
    moved = [Transfer(w, False, 1.0 * k, 1.0 * k + 3 * SIZE / total) for k in range(50) for w in range(3)]
    found = fit_exchanges([Evidence("x", "ray", 3, (), nbytes=SIZE, moved=moved)])
    assert found.server.bandwidth == pytest.approx(total, rel=0.02)
    assert found.server.sharing == "fair"
    assert any("no message had the way to itself" in said for said in found.unknown)


def test_links_that_differ_from_worker_to_worker_are_not_passed_over():
    moved = [Transfer(k % 2, False, 1.0 * k, 1.0 * k + (0.1 if k % 2 else 0.3)) for k in range(60)]
    found = fit_exchanges([Evidence("x", "ray", 2, (), nbytes=SIZE, moved=moved)])
    assert any("a byte of worker 0 takes 3.0 times as long as one of worker 1" in said for said in found.unknown)


def test_messages_are_alone_if_nothing_else_goes_their_way():
    a, b, c = Transfer(0, False, 0.0, 1.0), Transfer(1, False, 0.5, 2.0), Transfer(0, False, 2.0, 3.0)
    other = Transfer(1, True, 0.0, 9.0)
    assert alone([a, b, c, other]) == [c, other]
    assert most_at_once([a, b, c, other]) == 2
    assert most_at_once([a, c]) == 1


def test_messages_are_read_off_a_trace():
    """Heard 20 ms after it was computed, served in 1 ms, and 30 ms later the next is begun; then one is held back."""
    row = {"worker": 0, "applied": True, "samples": 1}
    rows = [
        {**row, "draw": 0, "started": 0.0, "computed": 0.010, "time": 0.030},
        {**row, "draw": 1, "started": 0.061, "computed": 0.071, "time": 0.500},
        {**row, "draw": 2, "started": 0.530, "computed": 0.540, "time": 0.560},
    ]
    calls = [{"time": t, "what": "call", "worker": 0} for t in (0.030, 0.091, 0.560)]
    found = transfers(rows, calls, 0.001)
    assert [t.out for t in found] == [False, True, False, True]
    assert [t.seconds for t in found] == pytest.approx([0.02, 0.03, 0.02, 0.03])
    assert unqueued(found) == pytest.approx([0.02, 0.03, 0.02, 0.03])


# -- predictions ------------------------------------------------------------------------------------------------------


def world(case):
    """The network as it is, for the simulator. Workers in exact step would use one way of the link at a time."""
    own, total = parse_rate(case.links.worker), parse_rate(case.links.server)
    server = {"bandwidth": total, "sharing": "fair"}
    return Cluster.parse(
        workers=case.workers(2), compute="lognormal(20ms, 10ms)", latency="1ms", bandwidth=own, server=server
    )


def observed(case, seconds=20.0):
    """A case on that network, passed off as real: then what must be predicted is known."""
    timed = simulate(world(case), case.solver, seconds=seconds, nbytes=4 * case.parameters, batch=case.batch)
    rows = [r for r in timed.trace.to_pylist() if r["applied"]]
    calls = [{"time": r["time"], "worker": r["worker"]} for r in rows]  # the server takes no time
    moved = transfers(rows, calls, 0.0) if case.solver == "asgd" else ()
    found = CaseRuns(case, case.workers(2))
    series = compute_times(rows, Cluster(workers=found.workers), 0)
    label = (case.name, "ray", found.workers, series, case.solver, str(case.parameters), 4 * case.parameters)
    found.evidence = [Evidence(*label, calls=len(calls), moved=moved)]
    found.outcomes = [of_timed(timed)]
    return found


def test_a_network_that_is_known_is_predicted_without_error():
    """Fitted to asgd alone: of a barrier, this trace does not say when the server heard a call."""
    measured = [observed(c) for c in LINK_CASES if c.half == "predict" or c.solver == "asgd"]
    rows = compare(measured, 20.0, lambda line: None, training=False)
    rates = [r for r in rows if r.what == "throughput"]
    assert len(rates) == 8
    for row in rates:
        assert row.error == pytest.approx(0, abs=0.03), row
    for row in rows:
        if row.what == "waiting":
            assert row.error == pytest.approx(0, abs=0.02), row
    told = found_links(measured)
    assert told[str(SHARED)].server == pytest.approx(parse_rate(SHARED.server), rel=0.03)
    assert told[str(SHARED)].sharing == "fair"
    assert told[str(NARROW)].server is None
    for links in (NARROW, SHARED):
        assert told[str(links)].worker == pytest.approx(parse_rate(links.worker), rel=0.02)
        assert told[str(links)].latency == pytest.approx(0.001, rel=0.1)


def test_the_link_that_was_found_is_in_the_file_that_others_take():
    known = [observed(c) for c in LINK_CASES if c.half == "fit" and c.links == SHARED and c.solver == "asgd"]
    written = as_toml(fit([e for m in known for e in m.evidence]))
    assert 'server = { "bandwidth" = "15' in written
    assert '"sharing" = "fair"' in written


# -- the page ---------------------------------------------------------------------------------------------------------

ABOUT = Conditions("now", 2, "x", [0.1, 0, 0])
FOUND = {
    "workers at 100Mbps, server at 150Mbps": FoundLinks(12.5e6, 18.75e6, 0.00044, 11.9e6, 17.9e6, "fair", []),
    "workers at 20Mbps, server at 100Mbps": FoundLinks(
        2.5e6, 12.5e6, 0.001, 2.38e6, None, None, ["server.bandwidth: x"]
    ),
}


def part(**changes):
    row = Prediction("asgd, 3 workers", "predict", 3, "throughput", 100.0, 104.0, 0.01, 95.0, 110.0)
    made = Validation("0", "ray", 14.0, 2, "", ABOUT, ABOUT, ["f"], [row], found=FOUND)
    return msgspec.structs.replace(made, **changes)


def test_the_page_has_a_section_of_slow_links():
    both = Validation("0", "local", 1.0, 2, "accuracy=0.9", ABOUT, ABOUT, ["f"], [], links=part())
    text = str(both)
    before, after = text.split("## Slow links between hosts\n")
    assert "## How\n" in before
    assert "Not covered**: more machines than one" in before
    assert "| 100Mbps | 95.2Mbps (95.2%) | 150Mbps | 143Mbps (95.5%) | at once, equal shares | 440us |" in after
    assert "| 20Mbps | 19Mbps (95.2%) | 100Mbps | - | - | 1ms |" in after
    assert "- workers at 20Mbps, server at 100Mbps: cannot tell server.bandwidth: x" in after
    assert "| asgd, 3 workers | 3 | 100 | 104 | +4.0% | 1.0% | 95 to 110 | yes |" in after
    assert "All hosts share this machine's 2 cores" in after
    assert "Only 2 of the 16 cases were run." in after
    assert "\n## " not in after, "its parts are below it"


def test_cases_in_which_the_processor_was_waited_for_are_named():
    text = str(Validation("0", "", 0.0, 0, "", {}, {}, [], [], links=part(processor={"a": 0.04, "b": 0.28})))
    assert "**In 1 of 2 cases that was not so**" in text
    assert "They say little about links: b (28%)." in text
    quiet = str(Validation("0", "", 0.0, 0, "", {}, {}, [], [], links=part(processor={"a": 0.04, "b": 0.071})))
    assert "that was not so" not in quiet
    assert "Batches and the server took 7.1% of a round at most." in quiet


def test_the_share_of_the_processor_is_that_of_a_round():
    """2 workers, 32 samples a batch, 640 samples a second: a round takes 100 ms, of which 20 + 5 ms are computed."""
    case = next(c for c in LINK_CASES if c.workers(2) == 2)
    times = np.full(30, 0.020)
    series = [Series(w, np.arange(30) * 0.1, times, np.full(30, case.batch)) for w in range(2)]
    found = CaseRuns(case, 2)
    found.evidence = [Evidence("x", "ray", 2, series, served=0.3, calls=60, rate=640.0)]
    assert on_the_processor([found]) == {case.name: pytest.approx(0.25)}


def test_links_alone_and_the_rest_alone_are_pages_too():
    alone = str(Validation("0", "", 0.0, 0, "", {}, {}, [], [], links=part()))
    assert alone.count("\n## ") == 1
    rest = str(Validation("0", "local", 1.0, 2, "accuracy=0.9", ABOUT, ABOUT, ["f"], []))
    assert "Slow links between hosts\n" not in rest
    assert "Not covered**: slow links between hosts (`offbeat validate --links`)" in rest


# -- rights, and the real thing ---------------------------------------------------------------------------------------


def test_without_the_rights_one_line_says_what_is_missing(shell, tmp_path, monkeypatch):
    monkeypatch.setattr("offbeat.lab.validation.ray_hosts.obstacle", lambda: "only root can make network namespaces")
    code, out, err = shell("validate", "--links")
    assert (code, out) == (2, "")
    assert err == (
        "offbeat: hosts with links of their own cannot be made here: only root can make network namespaces\n"
    )
    assert not (tmp_path / "validation").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"repeats": 0}, "repeats must be a whole number"),
        ({"seconds": "0s"}, "seconds must be"),
        ({"only": "x"}, "'x'"),
    ],
)
def test_bad_words_are_refused_before_anything_is_made(tmp_path, words, said):
    with pytest.raises(ConfigError, match=said):
        validate_links(**words, out=tmp_path / "v")
    assert not (tmp_path / "v").exists()


@pytest.fixture
def rights():
    pytest.importorskip("ray")
    if (why := obstacle()) is not None:
        assert not os.environ.get("OFFBEAT_REQUIRE_HOSTS"), why
        pytest.skip(why)


def made_by(pid):
    """The namespaces of a validation in this process."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    return [name for name in listed if name.startswith(f"obv{pid}h")]


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("rights")
def test_a_small_validation_runs_on_hosts_from_end_to_end(tmp_path):
    only = "asgd, 1 worker at 100Mbps, small model; asgd, 2 workers at 100Mbps, small model"
    assert len(chosen(only, LINK_CASES)) == 2
    found = validate_links(seconds="5s", repeats=1, only=only, out=tmp_path / "v")
    assert not found.links.left_out
    assert load(tmp_path / "v" / FILE) == found
    assert {r.what for r in found.links.rows} == {"throughput", "waiting", "staleness"}
    assert list(found.links.found) == [str(SHARED)]
    assert made_by(os.getpid()) == []
    again = validate_links(seconds="5s", repeats=1, only=only, out=tmp_path / "v")  # nothing is run twice
    assert again.links.rows == found.links.rows


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("rights")
def test_ctrl_c_leaves_no_host_and_no_process_behind(tmp_path):
    words = [sys.executable, "-m", "offbeat", "validate", "--links", "--out", tmp_path / "v"]
    command = subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: len(made_by(command.pid)) == 5 or command.poll() is not None, "hosts")
        until(lambda: _on(command.pid, 1) or command.poll() is not None, "something that runs on a host")
        assert command.poll() is None, command.communicate()[1]
        started = _on(command.pid, 1) | descendants(command.pid)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=100)
    finally:
        if command.poll() is None:
            command.terminate()
            command.communicate(timeout=100)
    assert command.returncode == 130, said
    assert said.splitlines()[-1] == "offbeat: interrupted"
    assert made_by(command.pid) == []
    assert [pid for pid in started if running(pid)] == []


def _on(pid, host):
    done = subprocess.run(["ip", "netns", "pids", f"obv{pid}h{host}"], capture_output=True, text=True, check=False)
    return {int(p) for p in done.stdout.split()}
