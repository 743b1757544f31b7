"""Solvers of one's own: the page that builds one, `offbeat check`, `offbeat cite`, and what they say of broken ones."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import offbeat
from offbeat.core.effects import Applied, Grad, Stepped
from offbeat.core.errors import ConfigError
from offbeat.core.trace import Row
from offbeat.lab import engines as lab_engines
from offbeat.lab.catalogue import bibliography, catalogue, engines_of, references
from offbeat.lab.config import make
from offbeat.lab.contract import (
    SGD,
    Broken,
    Case,
    advance,
    checks,
    one_worker_is_the_optimizer_itself,
    patience,
    versions_are_monotone,
)
from offbeat.lab.contract.findings import check
from offbeat.solvers import SOLVERS, build, hyper_parameters, solver_class
from offbeat.solvers.asgd import ASGD

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture
def nudge(tmp_path, monkeypatch):
    """The code of docs/adding.md, as nudge.py in the working folder."""
    code, *_ = re.findall(r"```python\n(.*?)```", (DOCS / "adding.md").read_text(encoding="utf-8"), re.S)
    (tmp_path / "nudge.py").write_text(code, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield code
    sys.modules.pop("nudge", None)


def command(folder, *words):
    env = {**os.environ, "PYTHONPATH": str(Path(offbeat.__file__).parent.parent)}
    code = "from offbeat.cli import main; main()"  # as the installed command: the working folder is not on the path
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def broken(folder, code, old, new, name="broken"):
    assert old in code
    (folder / f"{name}.py").write_text(code.replace(old, new), encoding="utf-8")
    return {f.check: f.words for f in check(f"{name}:Nudge", {}) if f.verdict == "fails"}


def test_the_solver_of_the_page_is_thirty_lines_or_so_and_keeps_the_contract(nudge, tmp_path):
    body = nudge[nudge.index("class Nudge") :].strip().splitlines()
    assert len(body) <= 36
    code, out, err = command(tmp_path, "check", "nudge:Nudge")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "ok    inputs are left alone"
    assert lines[1] == "ok    it asks for what it declares"
    assert lines[-1] == "nudge:Nudge keeps the contract"


def test_the_solver_that_announces_versions_shows_the_staleness_of_asgd(tmp_path, monkeypatch):
    _, code, *_ = re.findall(r"```python\n(.*?)```", (DOCS / "adding.md").read_text(encoding="utf-8"), re.S)
    (tmp_path / "by_hand.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    from by_hand import ByHand

    verdicts = {f.check: f.verdict for f in check("by_hand:ByHand", {})}
    assert "fails" not in verdicts.values(), verdicts
    assert verdicts["versions are monotone"] == "holds"
    assert "staleness" not in verdicts
    cluster = offbeat.Cluster.parse(workers=4, compute="lognormal(10ms, 5ms)", latency="1ms")
    mine, ours = (offbeat.train("quadratic", s, cluster, budget="60updates", out=False) for s in (ByHand, "asgd"))
    assert mine.summary["mean_staleness"] > 1
    columns = ["worker", "version_read", "version_applied", "staleness"]
    applied = [run.trace.filter(run.trace["applied"]).select(columns).to_pylist() for run in (mine, ours)]
    assert applied[0] == applied[1]
    sys.modules.pop("by_hand")


def test_its_name_works_wherever_a_name_does(nudge, tmp_path):
    code, out, err = command(
        tmp_path, "run", "quadratic", "--solver", "nudge:Nudge", "--workers", "3", "--budget", "40updates",
        "--set", "solver.beta=0.3", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["status"] == "done"
    code, _, err = command(tmp_path, "run", "quadratic", "--solver", "nudge:Nudge", "--set", "solver.alpha=0.3")
    assert code == 2
    assert "unknown hyper-parameter of solver 'nudge:Nudge' 'alpha'; known: beta, period" in err
    code, out, err = command(
        tmp_path, "compare", "quadratic", "--solvers", "asgd,nudge:Nudge", "--workers", "2", "--budget", "40updates",
        "--seeds", "1", "--set", "nudge:Nudge:solver.beta=0.3", "--json", "--out", "both",
    )  # fmt: skip
    assert code == 0, err
    assert {row["solver"] for row in json.loads(out)} == {"asgd", "nudge:Nudge"}
    run = offbeat.train("quadratic", "nudge:Nudge", 2, budget="20updates", out=False)
    assert run.status == "done"


def test_a_rule_that_changes_what_it_published_is_told_so(nudge, tmp_path):
    """The bug that made one paper's delay compensation a no-op."""
    words = broken(tmp_path, nudge, "s.x = s.x + self.beta * (x_i - s.x)", "s.x += self.beta * (x_i - s.x)", "aliased")
    assert "values were changed after they were seen, in: " in words["inputs are left alone"]


def test_a_rule_that_forgets_to_answer_is_told_so(nudge, tmp_path):
    words = broken(tmp_path, nudge, "        yield Reply(worker, s.x)", "        yield from ()", "silent")
    assert "everybody waits" in words["somebody is always busy"]


def test_a_rule_that_hides_a_gradient_is_told_so(nudge, tmp_path):
    words = broken(tmp_path, nudge, "        yield Applied(w.rank, g)\n", "", "hidden")
    assert "has no row: announce Applied or Refused" in words["every gradient is in the books"]


def test_a_rule_that_goes_uphill_is_told_so(nudge, tmp_path):
    words = broken(tmp_path, nudge, "w.x - self.eta", "w.x + self.eta", "uphill")
    assert words.keys() == {"it descends"}
    assert re.match(r"the loss of a bowl goes from 2\.\d+ to ", words["it descends"])


def test_a_rule_that_keeps_its_state_elsewhere_is_told_so(nudge, tmp_path):
    words = broken(tmp_path, nudge, "w.k == self.period", "self.count() == 0", "stateful")
    assert "AttributeError at " in words["somebody is always busy"]
    assert "stateful.py:" in words["somebody is always busy"]
    more = nudge.replace("w.k == self.period", "next(self.n) % self.period == 0").replace(
        "self.period, self.beta = whole", "self.n = __import__('itertools').count(1); self.period, self.beta = whole"
    )
    (tmp_path / "counting.py").write_text(more, encoding="utf-8")
    words = {f.check: f.words for f in check("counting:Nudge", {}) if f.verdict == "fails"}
    assert "when a run is saved and restored" in words["a restored run has the same bits"]


def test_a_rule_in_single_precision_is_told_so(nudge, tmp_path):
    words = broken(
        tmp_path,
        nudge,
        "s.x = s.x + self.beta * (x_i - s.x)",
        "s.x = (s.x + self.beta * (x_i - s.x)).float()",
        "single",
    )
    assert "torch.float32 was seen as well" in words["the dtype is kept"]


def test_what_is_no_solver_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    from offbeat import cli

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "wrong.py").write_text("x = 1\nfrom offbeat.core.solver import Solver\nclass Half(Solver): pass\n")
    (tmp_path / "bang.py").write_text("1 / 0\n")
    more = "from offbeat.solvers.asgd import ASGD\n"
    more += "class Needy(ASGD):\n    def __init__(self, opt, *, alpha): super().__init__(opt)\n"
    more += "class Free(ASGD):\n    def __init__(self): super().__init__(None)\n"
    (tmp_path / "more.py").write_text(more)
    for name, words in [
        ("wrong:x", "must be a class derived from offbeat.core.solver.Solver, got 1"),
        ("wrong:Half", "lacks init_server, init_worker, parameters, round"),
        ("wrong:y", "unknown name in wrong 'y'"),
        ("nowhere:Y", "cannot be imported: No module named 'nowhere'"),
        ("bang:Y", "cannot be imported: ZeroDivisionError: division by zero"),
        ("more:Needy", "solver 'more:Needy' needs solver.alpha, which has no default"),
        ("more:Free", "solver 'more:Free' must take the optimizer's factory as its argument `opt`"),
        ("agsd", "unknown solver 'agsd' (did you mean 'asgd'?)"),
    ]:
        monkeypatch.setattr(sys, "argv", ["offbeat", "check", name])
        with pytest.raises(SystemExit) as end:
            cli.main()
        found = capsys.readouterr()
        assert (end.value.code, found.out) == (2, "")
        assert words in found.err
        assert len(found.err.splitlines()) == 1
    for name in ("wrong", "more"):
        sys.modules.pop(name)


# -- checks that could not fail once ---------------------------------------------------------------------------------


class WithoutVersions(ASGD):
    """Its server counts updates, and does not say at which of them a gradient is used."""

    def on_call(self, s, worker, payload):
        for effect in super().on_call(s, worker, payload):
            yield Applied(effect.worker, effect.gradient) if isinstance(effect, Applied) else effect


class Still(ASGD):
    """Answers everybody and learns from nobody."""

    def on_call(self, s, worker, payload):
        if payload is None:
            yield from super().on_call(s, worker, payload)


class Uncounted(ASGD):
    """Learns, and never announces that it has made an update."""

    def on_call(self, s, worker, payload):
        return [e for e in super().on_call(s, worker, payload) if not isinstance(e, Stepped)]


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setitem(sys.modules, "rules_of_this_test", sys.modules[__name__])
    return lambda name, **options: Case(f"rules_of_this_test:{name}", **options)


def test_a_server_that_hides_its_versions_is_told_so(here):
    with pytest.raises(Broken, match="announces a gradient without saying at which"):
        versions_are_monotone(here("WithoutVersions"))


def test_a_trace_that_has_lost_its_versions_is_no_excuse(monkeypatch):
    """As if the engine dropped the column: the rule has announced them, and the rows have none."""
    at = Row._fields.index("version_applied")

    def forgetful(sim, *amount):
        advance(sim, *amount)
        sim.rows[:] = [(*row[:at], None, *row[at + 1 :]) for row in sim.rows]

    monkeypatch.setattr(checks, "advance", forgetful)
    with pytest.raises(Broken, match="rows of the trace have lost their version"):
        versions_are_monotone(Case("asgd"))


def test_a_rule_that_makes_no_update_is_not_the_optimizer_itself(here):
    """After no steps, everything is as far as a loop around the optimizer."""
    with pytest.raises(Broken, match="makes 0 updates, and 30 were waited for"):
        one_worker_is_the_optimizer_itself(here("Still", workers=1, alone=SGD))


def test_a_rule_that_never_announces_an_update_is_not_waited_for_for_ever(here):
    found = {f.check: f for f in check(here("Uncounted").solver, {})}
    assert found["somebody is always busy"].words == "only 0 updates in 60 events: no Stepped() was announced"
    assert "makes 0 updates" in found["one worker"].words


class Endless(ASGD):
    """Its workers never ask for anything."""

    def round(self, w):
        yield Stepped()


class Announcing(ASGD):
    """Its server never stops."""

    def on_call(self, s, worker, payload):
        while True:
            yield Stepped()


class Stuck(ASGD):
    """Its server yields nothing, and does not come to an end either."""

    def on_call(self, s, worker, payload):
        while True:
            pass
        yield


class Unversioned(ASGD):
    """Says which version a gradient is of, and not at which it is used."""

    def on_call(self, s, worker, payload):
        for effect in super().on_call(s, worker, payload):
            yield Applied(effect.worker, effect.gradient) if isinstance(effect, Applied) else effect

    def version(self, s):
        return None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Endless", "a worker yields Stepped again and again, and asks for nothing that takes time"),
        ("Announcing", "on_call has no end: after 10,000 effects it yields Stepped"),
    ],
)
def test_a_rule_without_an_end_is_not_waited_for_and_it_is_said_what_for(here, name, said):
    found = {f.check: f for f in check(here(name).solver, {})}
    for sentence in ("inputs are left alone", "somebody is always busy", "it descends"):
        assert found[sentence].verdict == "fails"
        assert found[sentence].words.startswith(said)


def test_a_rule_that_loops_without_a_word_is_interrupted(here, monkeypatch):
    """In seconds of computing, not of waiting."""
    monkeypatch.setattr(patience, "SECONDS", 0.2)
    found = {f.check: f for f in check(here("Stuck").solver, {})}
    assert found["it descends"].verdict == "fails"
    assert re.match(r"it has computed for 0.2 s and has no end \(in on_call, line \d+\)", found["it descends"].words)


def test_a_rule_that_reads_versions_and_does_not_announce_them_gets_a_warning(here):
    notes = [f.words for f in check(here("Unversioned").solver, {}) if f.check == "staleness"]
    assert len(notes) == 1
    assert notes[0].startswith("Grad carries a version and Applied does not: yield Applied(worker, gradient, version)")
    assert not [f for f in check("asgd", {}) if f.check == "staleness"]


# -- lists, papers, pages -------------------------------------------------------------------------------------------


def test_every_solver_is_listed_with_its_line_paper_and_engines():
    rows = catalogue("solvers")
    assert [r["name"] for r in rows] == list(SOLVERS)
    for row in rows:
        assert row["what"]
        assert row["paper"]
        assert "sim" in row["engines"].split(", ")


def test_an_engine_says_why_it_cannot_run_a_solver():
    def why(name):
        return {row["engine"]: row["runs it"] for row in engines_of(name)}

    lacks = "it asks for Lock, SharedAdd, SharedRead, Unlock"
    whole = "its parameters are not with a server alone"
    yes = dict.fromkeys(("sim", "local", "ray", "threads"), "yes")
    assert why("hogwild") == {**yes, "debug": lacks, "ray.shards": whole}
    assert (
        why("asgd")["threads"]
        == "it does not train in place, without a lock and without clipping, as plain and hogwild can"
    )
    for name in SOLVERS:
        can = [engine for engine, answer in why(name).items() if answer == "yes" and engine in lab_engines.ENGINES]
        assert ", ".join(can) == next(r["engines"] for r in catalogue("solvers") if r["name"] == name)


def test_an_engine_that_lacks_an_effect_names_it(monkeypatch):
    poor = type("Poor", (), {"asks": frozenset({Grad})})
    monkeypatch.setattr(lab_engines, "load_object", lambda path, what: poor)
    assert lab_engines.ENGINES["sim"].why_not(ASGD) == "it asks for Call"


def test_a_new_engine_is_one_line(monkeypatch):
    """Everything that names engines asks the table: a further one is known to all of them."""
    monkeypatch.setitem(lab_engines.ENGINES, "seventh", lab_engines.ENGINES["sim"])
    assert make({"task": "quadratic", "engine": "seventh"}).engine == "seventh"
    assert "seventh" in [row["name"] for row in catalogue("engines")]
    assert catalogue("solvers")[0]["engines"].endswith("seventh")
    run = offbeat.train("quadratic", budget="5updates", engine="seventh", out=False)
    assert (run.status, run.summary["engine"]) == ("done", "seventh")
    with pytest.raises(ConfigError, match="unknown engine 'eighth'; known: debug, local, ray, seventh, sim, threads"):
        make({"task": "quadratic", "engine": "eighth"})


def test_every_citation_is_in_the_bibliography():
    entries = bibliography()
    for name in SOLVERS:
        kind = solver_class(name)
        keys = [k for k in kind.paper.split(", ") if k != "-"] + list(getattr(kind, "cite", ()))
        assert set(keys) <= set(entries), name
        if keys:
            assert references(name).count("\n@") + 1 == len(set(keys))
    for key, entry in entries.items():
        assert entry.startswith("@")
        assert entry.count("{") == entry.count("}"), key
        for field in ("author", "title", "year"):
            assert f"  {field} = {{" in entry, key


def test_cite_prints_bibtex(tmp_path):
    code, out, _ = command(tmp_path, "cite", "dc-asgd")
    assert code == 0
    assert "@misc{lamour2023," in out
    assert "@inproceedings{zheng2017dcasgd," in out
    with pytest.raises(ConfigError, match="names no paper"):
        references("plain")


def sections():
    """docs/solvers.md: the text under each solver's heading."""
    parts = re.split(r"^### `([a-z-]+)`", (DOCS / "solvers.md").read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_solver_and_every_hyper_parameter_stands_in_the_page():
    found = sections()
    assert set(found) == set(SOLVERS)
    for name, text in found.items():
        for key, default in hyper_parameters(solver_class(name)).items():
            assert f"`{key}={default}`" in text or f"`{key}={json.dumps(default)}`" in text, f"{name}: {key}={default}"
        for word in ("Version", "Memory"):
            assert word in text, f"{name}: {word}"


def test_what_was_reconstructed_is_labelled_in_the_page_and_in_the_code():
    for name, text in sections().items():
        in_code = "[reconstructed]" in (solver_class(name).__doc__ or "")
        assert ("*reconstructed*" in text) == in_code, name


@pytest.mark.parametrize("name", SOLVERS)
def test_a_wrong_hyper_parameter_lists_the_right_ones(name):
    from functools import partial

    import torch

    with pytest.raises(ConfigError) as e:
        build(name, partial(torch.optim.SGD, lr=0.1), {"nonsense": 1})
    for key in hyper_parameters(solver_class(name)):
        assert key in str(e.value)
