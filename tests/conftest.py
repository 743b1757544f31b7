"""What every test is given: one thread, and one process that starts others."""

import sys

import pytest
import torch

# The text and the task that the tests of word2vec share; `--stress`; what was skipped, and why; runs from outside.
pytest_plugins = ["topics", "stress.plugin", "skips", "processes"]


@pytest.fixture(autouse=True)
def _one_thread():
    """One intra-op thread in every test: the number of threads changes bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="session")
def _own_state(tmp_path_factory):
    """The key that signs runs of one's own code is not that of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def launcher():
    """Starts the processes of all real runs of the session: importing torch takes it seconds. Do not harm it."""
    from offbeat.engines.local import Launcher

    made = Launcher()
    yield made
    made.close()


@pytest.fixture(scope="session")
def crew():
    """Processes of a Ray on the loopback, for all runs of the session on it."""
    from offbeat.engines.ray.crew import Crew
    from offbeat.engines.ray.ray_options import RayOptions
    from real import CREW

    made = Crew(CREW, RayOptions())
    yield made
    made.close()


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    """The command line in this process, in an empty folder: its exit code, what it prints, and what it complains."""
    from offbeat import cli

    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["offbeat", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


@pytest.fixture
def starter(request, place):
    """What a real run is built with: the launcher, or None for threads of this process (see `real.PLACES`)."""
    needed = {"on processes": "launcher", "on ray": "crew"}.get(place)
    return None if needed is None else request.getfixturevalue(needed)
