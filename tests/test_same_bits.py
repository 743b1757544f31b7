"""The same words are the same bits, whatever surrounds them."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import offbeat
from harness import points
from offbeat.core.bits import USUAL, TorchState, cpu_type
from offbeat.core.errors import StoreError


@pytest.fixture(autouse=True)
def _torch_as_it_was():
    before = TorchState.now()
    yield
    before.set()


class Net(nn.Module):
    """Large enough that torch would share its products among threads, with dropout and a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(12, 400), nn.Dropout(0.3), nn.Linear(396, 4)
        self.fold = nn.Conv1d(1, 1, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))[:, None]
        return self.last(self.drop(self.fold(x)[:, 0]))


def bits(callbacks=(), task=None, **options) -> tuple:
    task = task or offbeat.task(Net, F.cross_entropy, points(400), points(60, 1))
    words = {"budget": "30updates", "batch": 64, "evaluate_every": "5updates", "lr": 0.02, **options}
    run = offbeat.train(task, "asgd", 3, out=False, callbacks=callbacks, **words)
    rows = [{k: v for k, v in row.items() if k != "time"} for row in run.metrics.to_pylist()]
    return run.summary["params_sha256"], run.trace.to_pylist(), rows


@pytest.fixture(scope="module")
def expected() -> tuple:
    return bits()


class Meddles:
    """A callback that changes what it can reach, at every row and every evaluation."""

    def on_apply(self, row):
        self.meddle()

    def on_evaluation(self, row):
        self.meddle()

    def meddle(self):
        torch.set_num_threads(4)
        torch.set_float32_matmul_precision("medium")
        torch.set_default_dtype(torch.float64)
        torch.set_flush_denormal(True)
        torch.set_grad_enabled(False)
        torch.manual_seed(3)
        torch.rand(5)
        np.random.seed(4)
        random.seed(5)


def test_callbacks_that_change_torch_do_not_change_the_run(expected):
    assert len(expected[1]) >= 30
    assert bits([Meddles()]) == expected
    assert bits([Meddles()], pool=2) == expected


AROUND = {
    "threads": lambda: torch.set_num_threads(4),
    "precision": lambda: torch.set_float32_matmul_precision("medium"),
    "denormals": lambda: torch.set_flush_denormal(True),
    "no grad": lambda: torch.set_grad_enabled(False),
    "no oneDNN": lambda: torch.backends.mkldnn.set_flags(False),
    "a seed": lambda: torch.manual_seed(7),
}


@pytest.mark.parametrize("name", AROUND)
def test_what_the_caller_has_set_does_not_change_the_run_and_is_left_alone(name, expected):
    AROUND[name]()
    before = TorchState.now()
    assert name == "a seed" or before != USUAL
    assert bits() == expected
    assert TorchState.now() == before


def test_another_default_dtype_or_device_does_not_change_a_named_task():
    words = {"budget": "6updates", "batch": 8, "evaluate_every": "3updates"}
    expected = bits(task="digits", **words)
    torch.set_default_dtype(torch.float64)
    assert bits(task="digits", **words) == expected
    assert torch.get_default_dtype() == torch.float64
    torch.set_default_dtype(torch.float32)
    torch.set_default_device("meta")
    try:
        assert bits(task="digits", **words) == expected
    finally:
        torch.set_default_device(None)


def test_a_model_made_in_float64_stays_in_float64():
    torch.set_default_dtype(torch.float64)
    x, y = points(400)
    task = offbeat.task(Net, F.cross_entropy, (x.double(), y), (x.double(), y))
    torch.set_default_dtype(torch.float32)
    run = offbeat.train(task, "asgd", 2, budget="5updates", batch=8, out=False)
    assert run.params.dtype == torch.float64


def test_the_third_run_of_a_process_is_as_the_first(expected):
    assert bits() == bits() == expected


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import offbeat
from test_same_bits import bits
found = [bits() for _ in range(int(sys.argv[2]))]
config = offbeat.train("quadratic", "gap-aware", 3, budget="20updates", out=False)
print(json.dumps([found[-1], config.summary["params_sha256"]], default=str))
"""

SURROUNDINGS = {
    "one thread": ({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}, 1),
    "many threads, another locale, another hash": (
        {"OMP_NUM_THREADS": "7", "MKL_NUM_THREADS": "3", "LC_ALL": "C", "LANG": "tr_TR.UTF-8", "PYTHONHASHSEED": "77"},
        1,
    ),
    "no locale, the second run": ({"LC_ALL": "", "PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "PYTHONUTF8": "1"}, 2),
}


def in_a_process(folder: Path, environment: dict[str, str], runs: int) -> str:
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, here, str(runs)],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.processes
def test_surroundings_of_the_process_do_not_change_the_run(tmp_path):
    found = {}
    for number, (name, (environment, runs)) in enumerate(SURROUNDINGS.items()):
        folder = tmp_path / f"folder {number}"
        folder.mkdir()
        found[name] = in_a_process(folder, environment, runs)
    assert len(set(found.values())) == 1


def test_another_processor_is_told_on_resume(tmp_path, monkeypatch):
    """Its sums may be rounded otherwise: the promise of the same bits would be broken in silence."""

    def train(**options):
        words = {"budget": "20updates", "evaluate_every": "3updates", "out": tmp_path / "run"}
        return offbeat.train("quadratic", "asgd", 2, **words, **options)

    class Interrupts:
        """As Ctrl-C does, from within."""

        def on_evaluation(self, row):
            if row["updates"] == 6:
                os.kill(os.getpid(), 2)

    with pytest.raises(KeyboardInterrupt):
        train(callbacks=[Interrupts()])
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["versions"]["cpu"] == cpu_type()
    info["versions"]["cpu"] = "Babbage 1837, cogwheels"
    (tmp_path / "run" / "run.json").write_text(json.dumps(info))
    with pytest.raises(StoreError, match=r"started with the processor Babbage 1837, cogwheels, this is .*--again"):
        train()
