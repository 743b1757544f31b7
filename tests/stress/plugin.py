"""`pytest --stress SEED`: runs on real processes go through random adversity. And which tests those are.

A test of real processes has the marker `processes`: from itself, its module, or because it uses the launcher.
"""

import os
import shutil
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import adversity  # noqa: E402 - it is imported by its bare name in the other processes too

FOLDER = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stress", metavar="SEED", type=int, help="processes start late, are slow and stall, by lot")
    parser.addoption("--share", metavar="N", type=int, default=1, help="under stress: one test of N, by lot")


def pytest_configure(config: pytest.Config) -> None:
    seed = config.getoption("--stress")
    if seed is None:
        return
    try:
        adversity.check()
    except AttributeError as e:
        raise pytest.UsageError(str(e)) from None
    of_xdist = getattr(config, "workerinput", None)  # a worker of xdist is told where all of them take their notes
    config.stash[FOLDER] = Path(of_xdist["stress"] if of_xdist else tempfile.mkdtemp(prefix="stress-"))
    own = config.stash[FOLDER] / (of_xdist["workerid"] if of_xdist else "main")
    own.mkdir()
    os.environ[adversity.VARIABLE] = f"{seed}:{own}"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    adversity.install()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    if FOLDER in node.config.stash:
        node.workerinput["stress"] = str(node.config.stash[FOLDER])


def pytest_unconfigure(config: pytest.Config) -> None:
    if FOLDER in config.stash and not hasattr(config, "workerinput"):
        shutil.rmtree(config.stash[FOLDER], ignore_errors=True)


@pytest.hookimpl(tryfirst=True)  # before markers choose
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "launcher" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.processes)
        on_ray = "[on ray" in item.nodeid or "crew" in getattr(item, "fixturenames", ())
        if on_ray:  # with --dist loadgroup one process has them all: a Ray for each would be too many
            item.add_marker(pytest.mark.xdist_group("ray"))
    seed, share = config.getoption("--stress"), config.getoption("--share")
    if seed is not None and share > 1:
        items[:] = [item for item in items if drawn(item.nodeid, seed, share)]


def drawn(test: str, seed: int, share: int) -> bool:
    """Whether a test is among those of this seed: each of them in one of `share` seeds that follow each other."""
    return (zlib.crc32(test.encode()) + seed) % share == 0


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Notes which test it is, for processes that are started long before or long after."""
    if FOLDER in item.config.stash:
        own = os.environ[adversity.VARIABLE].partition(":")[2]
        (Path(own) / "test").write_text(item.nodeid.removesuffix("@ray"), encoding="utf-8")


@pytest.fixture(autouse=True)
def _only_marked_tests_start_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or `make stress` would miss them."""
    if request.node.get_closest_marker("processes") is None:
        from offbeat.engines.local import Launcher

        def refuse(self: Any, *args: Any, **options: Any) -> None:
            raise AssertionError("this test starts real processes: give it the marker `processes`")

        monkeypatch.setattr(Launcher, "__init__", refuse)


def _unhit(config: pytest.Config) -> list[str]:
    """Seams that no process came by, though all tests were run."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS or config.getoption("keyword"):
        return []
    if config.getoption("--share") > 1:
        return []
    return [what for what, n in adversity.counts(config.stash[FOLDER]).items() if n == 0]


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if FOLDER in config.stash and not hasattr(config, "workerinput") and _unhit(config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if FOLDER not in config.stash:
        return
    hits = adversity.counts(config.stash[FOLDER])
    found = ", ".join(f"{what} {n} times" for what, n in hits.items())
    terminalreporter.write_line(f"stress, seed {config.getoption('--stress')}: {found}")
    for what in _unhit(config):
        terminalreporter.write_line(f"stress failed: it never happened that {what}", red=True)
