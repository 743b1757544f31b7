"""Signals from outside, at every process of a run: it ends in order, goes on, or says whom it waits for."""

import json
import os
import re
import signal

import pytest

from harness import Stop
from offbeat import solver
from offbeat.core.interruption import heeded
from offbeat.engines.local import Fault, Options
from offbeat.engines.real import control
from processes import LIMIT, alive, by_age, descendants, until
from real import build

pytestmark = pytest.mark.processes

# -- the whole run -----------------------------------------------------------------------------------------------------


def told(tmp_path):
    return json.loads((tmp_path / "run" / "run.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_it_ends_as_after_ctrl_c(started, tmp_path, number, code):
    """The signal goes to everybody, as from a terminal that is closed or a machine that is shut down."""
    process = started("--budget", "1000s", start_new_session=True)
    family = descendants(process.pid)
    until(lambda: (tmp_path / "run" / "run.json").exists(), "the run's description")
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == code, err
    assert err.strip().splitlines()[-1] == f"interrupted; go on with: offbeat resume {tmp_path / 'run'}"
    assert "Traceback" not in err
    assert told(tmp_path)["status"] == "interrupted"
    assert (tmp_path / "run" / "checkpoint.safetensors").exists()
    until(lambda: not any(alive(p) for p in family), "the end of all processes")


@pytest.mark.slow
def test_nohup_is_respected(started, tmp_path):
    process = started(
        "--budget",
        "1000s",
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    until(lambda: (tmp_path / "run" / "run.json").exists(), "the run's description")
    os.killpg(process.pid, signal.SIGHUP)
    os.killpg(process.pid, signal.SIGTERM)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 143


@pytest.mark.parametrize("ignored", [signal.SIGHUP, signal.SIGINT])
def test_only_a_hang_up_may_be_ignored(ignored):
    """nohup ignores it for good; a shell that starts us in the background does that to Ctrl-C, and does not mean it."""
    before = signal.signal(ignored, signal.SIG_IGN)
    try:
        assert (ignored in heeded()) == (ignored == signal.SIGINT)
    finally:
        signal.signal(ignored, before)


# -- those who start the others ----------------------------------------------------------------------------------------


def launcher_of(process):
    """Of a command: its launcher and its forker."""
    (launcher,) = [p for p in descendants(process.pid) if len(descendants(p)) >= 4]
    (forker,) = [p for p in descendants(launcher) if len(descendants(p)) >= 3]
    return {"launcher": launcher, "forker": forker}


@pytest.mark.slow
@pytest.mark.parametrize("who", ["launcher", "forker"])
def test_a_run_whose_processes_cannot_be_started_any_more_fails_in_one_line(started, tmp_path, who):
    process = started("--budget", "1000s")
    family = descendants(process.pid)
    until(lambda: (tmp_path / "run" / "run.json").exists(), "the run's description")
    os.kill(launcher_of(process)[who], signal.SIGKILL)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 1, err
    why = "the process that starts the others was lost: this run cannot go on (offbeat resume does)"
    assert err.strip().splitlines()[-1] == f"offbeat: {why}"
    assert "Traceback" not in err
    assert (told(tmp_path)["status"], told(tmp_path)["why"]) == ("failed", why)
    until(lambda: not any(alive(p) for p in family), "the end of all processes")


# -- one who stands still ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("k", "words"),
    [(0, r"waiting for the server for (\d+) s"), (2, r"waiting for worker 1(?: at batch \d+)? for (\d+) s")],
    ids=["server", "worker 1"],
)
def test_a_stopped_process_is_named_while_it_is_waited_for(started, k, words):
    # Whoever looks at the run has all workers go on after it: there is to be no look here, after the first losses.
    process = started("--budget", "1000s", "--delay", "1ms", "--set", "evaluate.every=10000000updates")
    said(process, "samples/s")
    forker = launcher_of(process)["forker"]
    os.kill(by_age(descendants(forker))[k], signal.SIGSTOP)
    assert int(said(process, words)[1]) >= control.WORTH_SAYING


def said(process, words):
    """Reads what a run says until there is something with these words."""
    while line := process.stderr.readline():
        if found := re.search(words, line):
            return found
    raise AssertionError("the run has ended")


class SeenError(Exception):
    """What was to be seen."""


class Waits(Stop):
    """Until this one is waited for; others may be late, too."""

    def __init__(self, who):
        super().__init__()
        self.words = rf"waiting for (.*, )?{who} for \d+ s"

    def show(self):
        if re.match(self.words, self.engine.waiting):
            raise SeenError


@pytest.mark.parametrize("who", ["the server", "worker 1 at batch 3"])
def test_who_hangs_is_waited_for_in_words(launcher, monkeypatch, who):
    monkeypatch.setattr(control, "WORTH_SAYING", 0.3)
    faults = (Fault("hang", 3, worker=None if who == "the server" else 1),)
    engine = build(launcher, solver("asgd", lr=0.1), options=Options(faults=faults))
    try:
        with pytest.raises(SeenError):
            engine.run(Waits(who).watch(engine))
    finally:
        engine.close()
