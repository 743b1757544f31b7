"""Runs with a Ray of their own, from the command line: they go on and leave nothing; what cannot be is said."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import offbeat
from harness import mlp_task
from offbeat import cli
from offbeat.core.errors import ConfigError
from offbeat.engines.ray.connection import Connection, refuse_another, require_ray
from offbeat.engines.ray.crew import Crew, check_versions, root_of
from offbeat.engines.ray.host import About, versions
from offbeat.engines.ray.ray_options import RayOptions
from processes import alive, descendants, until

LONG = ["digits", "--engine", "ray", "--workers", "2", "--budget", "40epochs", "--out", "r", "--checkpoint-every", "1s"]


def start(*words, folder):
    command = [sys.executable, "-m", "offbeat", *words]
    env = {**os.environ, "OFFBEAT_PROGRESS": "0"}
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def finish(process):
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def status(folder):
    try:
        return json.loads((folder / "r" / "run.json").read_text(encoding="utf-8"))["status"]
    except (OSError, ValueError, KeyError):
        return None


def called(pid):
    """What a process calls itself."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def checkpointed(folder):
    return any(folder.joinpath("r").glob("checkpoint*"))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(500)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_a_driver_that_goes_leaves_nothing_and_the_run_goes_on(how, tmp_path):
    driver = start("run", *LONG, folder=tmp_path)
    until(lambda: checkpointed(tmp_path) or driver.poll() is not None, "a checkpoint")
    assert driver.poll() is None, finish(driver)
    below = {p for p in descendants(driver.pid) if b"Agent" not in called(p)}  # Ray's agents look only once a minute
    assert any(b"ray::Host" in called(p) for p in below)
    driver.send_signal(how)
    code, _, err = finish(driver)
    if how is signal.SIGINT:
        assert code == 130, err
        assert status(tmp_path) == "interrupted"
    until(lambda: not any(alive(p) for p in below), "all processes of the run to end")
    code, _, err = finish(start("resume", "r", folder=tmp_path))
    assert code == 0, err
    assert status(tmp_path) == "done"
    code, out, err = finish(start("replay", "r", folder=tmp_path))
    assert code == 0, err
    assert "equal, bit for bit" in out
    assert not checkpointed(tmp_path)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--set", "ray.server=10.1.2.3"], "ray.server=10.1.2.3: there is no such machine"),
        (["--set", "ray.gpus=1"], "asks for 2 GPUs"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_ray_cannot_give_is_said(words, why, tmp_path):
    code, _, err = finish(start("run", *LONG, *words, folder=tmp_path))
    assert code == 2, err
    assert why in err
    assert "Traceback" not in err


@pytest.mark.slow
@pytest.mark.processes
def test_a_script_that_has_imported_ray_before_starts_one_on_the_loopback_too():
    """Ray had read other variables then than its processes would."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    words = [sys.executable, Path(__file__).with_name("imports_ray_first.py")]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["127.0.0.1"]


def test_if_ray_cannot_be_told_any_more_that_is_said_at_once(monkeypatch):
    monkeypatch.setattr("ray._private.authentication.authentication_utils.is_token_auth_enabled", lambda: False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(ConfigError, match="Ray was imported before it was told how to authenticate: set RAY_AUTH_MODE"):
        Connection(None, 1)


def test_an_address_where_nobody_answers_is_one_line():
    with pytest.raises(ConfigError, match=r"no Ray answers at 127.0.0.1:1 within"):
        Connection("127.0.0.1:1", 2)


def test_versions_that_differ_are_named():
    there = About("10.0.0.2", 1, {**versions(), "torch": "1.0", "Python": "3.9.1"})
    with pytest.raises(ConfigError, match=r"machine 10.0.0.2 has other versions: Python 3.9.1 there.*; torch 1.0"):
        check_versions(there)
    check_versions(About("10.0.0.2", 1, versions()))


def test_of_pages_of_an_error_the_line_that_says_it_is_shown():
    pages = "The actor died because of an error raised in its creation task, \x1b[36mray::Host\n  File x, line 1\n"
    pages += "ModuleNotFoundError: No module named 'offbeat'\n\n"
    assert root_of(RuntimeError(pages)) == "ModuleNotFoundError: No module named 'offbeat'"
    assert root_of(RuntimeError("it ended\nfor good")) == "it ended"


def test_what_cannot_be_sent_is_named_with_the_reason(tmp_path, monkeypatch):
    """Before a Ray is looked for."""
    monkeypatch.chdir(tmp_path)
    task = mlp_task()
    task.line = threading.Lock()
    with pytest.raises(ConfigError, match=r"the task cannot be sent .*: its attribute 'line' \(lock\)"):
        offbeat.train(task, "asgd", 2, engine="ray", budget="5updates", settings={"ray.address": "127.0.0.1:1"})


def test_more_workers_than_this_machine_has_memory_for_are_refused_with_the_numbers(monkeypatch):
    """Before a Ray is started, which would offer as many places as are asked for."""
    monkeypatch.setattr("offbeat.core.memory.available_bytes", lambda: 11 * 10**9)
    monkeypatch.setattr("offbeat.engines.ray.crew.Connection", None)
    with pytest.raises(ConfigError, match=r"501 processes on this machine .* need about 110GB .* only 11GB"):
        Crew(500, RayOptions())


def test_a_ray_client_is_refused():
    with pytest.raises(ConfigError, match="is of a Ray client"):
        Connection("ray://127.0.0.1:10001", 2)


def test_another_ray_than_the_one_asked_for_is_not_taken_for_it():
    refuse_another(None, "10.0.0.1:6379")
    refuse_another("auto", "10.0.0.1:6379")
    refuse_another("10.0.0.1:6379", "10.0.0.1:6379")
    refuse_another("localhost:6379", "127.0.0.1:6379")
    with pytest.raises(ConfigError, match=r"connected with the Ray at 10.0.0.1:6379, and address=10.0.0.2:6379"):
        refuse_another("10.0.0.2:6379", "10.0.0.1:6379")


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else found(name))
    with pytest.raises(ConfigError, match=r"pip install 'offbeat\[ray\]'"):
        require_ray()


@pytest.mark.parametrize(
    "setting",
    ["ray.transport=pigeon", "ray.encryption=maybe", "ray.cpus=-1", "ray.gpus=nan", "ray.wait=0s", "ray.server="],
)
def test_wrong_options_are_refused_before_anything_starts(setting, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["offbeat", "run", *LONG, "--set", setting])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert setting.partition("=")[0] in capsys.readouterr().err
    assert not Path("r").exists()


def test_options_of_a_cluster_are_part_of_a_run_and_old_addresses_stay():
    from offbeat.lab.config import make

    plain = make({"task": {"name": "digits"}})
    assert "ray" not in plain.plain()
    there = make({"task": {"name": "digits"}, "engine": "ray", "ray": {"address": "10.0.0.1:6379"}})
    assert there.plain()["ray"]["address"] == "10.0.0.1:6379"
    assert there.hash != plain.hash
