"""A run whose engine refuses to start, because something is not to be had, leaves everything as it was."""

from pathlib import Path

import pytest

import offbeat
from offbeat.core.errors import ConfigError
from offbeat.engines.debug.in_process import ThreadProcesses
from offbeat.engines.local.processes import LocalProcesses
from offbeat.engines.ray.ray_processes import RayProcesses
from offbeat.engines.real.transport import RunError

WORDS = {"budget": "4updates", "cluster": 2}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def refuse(monkeypatch, kind, error):
    def open_nothing(self):
        raise error

    monkeypatch.setattr(kind, "open", open_nothing)


@pytest.mark.parametrize("error", [ConfigError("no room for 2 workers"), RunError("processes cannot be started")])
@pytest.mark.parametrize(
    ("engine", "kind"), [("local", LocalProcesses), ("debug", ThreadProcesses), ("ray", RayProcesses)]
)
def test_nothing_is_left_of_a_run_that_could_not_begin(engine, kind, error, monkeypatch):
    if engine == "ray":
        pytest.importorskip("ray")
    refuse(monkeypatch, kind, error)
    with pytest.raises(type(error), match=str(error)):
        offbeat.train("quadratic", engine=engine, **WORDS)
    assert list(Path("runs").glob("*")) == []


@pytest.mark.processes
def test_a_finished_run_that_cannot_be_run_again_is_still_there(monkeypatch):
    before = offbeat.train("quadratic", engine="debug", **WORDS)
    files = {path.name: path.read_bytes() for path in before.path.iterdir() if path.name != "lock"}
    refuse(monkeypatch, ThreadProcesses, ConfigError("no room"))
    with pytest.raises(ConfigError, match="no room"):
        offbeat.train("quadratic", engine="debug", again=True, **WORDS)
    assert files.items() <= {path.name: path.read_bytes() for path in before.path.iterdir()}.items()
    assert offbeat.Run.load(before.path).status == "done"
