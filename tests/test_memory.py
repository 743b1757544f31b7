"""What would not fit into memory is refused before it starts, with the numbers."""

import gc
from pathlib import Path

import pytest
import torch

import offbeat
from harness import Stop
from offbeat.core import memory
from offbeat.core.errors import ConfigError
from offbeat.lab.config import make
from offbeat.lab.engines import build_engine
from offbeat.lab.runs import ready
from offbeat.lab.runs.plan import build
from offbeat.solvers import SOLVERS, solver_class

GB = 10**9


def machine(root: Path, cgroup: str = "", available: int = 16 * GB, **files: int | str) -> tuple[Path, Path]:
    """A /proc and a /sys/fs/cgroup; a dot in a key is written __, a folder ___."""
    proc, groups = root / "proc", root / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable:   {available // 1024} kB\n")
    (proc / "self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = groups / name.replace("___", "/").replace("__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return proc, groups


FOUND = {
    "no groups": ("", {}, 16 * GB),
    "v2 without a limit": ("0::/", {"memory__max": "max", "memory__current": 5 * GB}, 16 * GB),
    "v2 in a container": ("0::/", {"memory__max": 8 * GB, "memory__current": 5 * GB}, 3 * GB),
    "v2 with cached files": (
        "0::/",
        {"memory__max": 8 * GB, "memory__current": 5 * GB, "memory__stat": f"anon 1\ninactive_file {2 * GB}"},
        5 * GB,
    ),
    "v2, the group above is narrower": (
        "0::/user/me",
        {"user___memory__max": 4 * GB, "user___memory__current": GB, "user___me___memory__max": "max"},
        3 * GB,
    ),
    "v1": (
        "12:cpu,cpuacct:/x\n5:memory:/\n1:name=systemd:/",
        {"memory___memory__limit_in_bytes": 6 * GB, "memory___memory__usage_in_bytes": 2 * GB},
        4 * GB,
    ),
    "v1 without a limit": (
        "5:memory:/",
        {"memory___memory__limit_in_bytes": 9223372036854771712, "memory___memory__usage_in_bytes": GB},
        16 * GB,
    ),
    "v1, a group of our own": (
        "5:memory:/job",
        {
            "memory___job___memory__limit_in_bytes": 6 * GB,
            "memory___job___memory__usage_in_bytes": 4 * GB,
            "memory___job___memory__stat": f"total_inactive_file {GB}",
        },
        3 * GB,
    ),
    "nothing left": ("0::/", {"memory__max": GB, "memory__current": 2 * GB}, 0),
    "nonsense": ("0::/", {"memory__max": "a lot", "memory__current": ""}, 16 * GB),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_available_is_what_the_narrowest_group_leaves(tmp_path, name):
    cgroup, files, expected = FOUND[name]
    found = memory.available_bytes(*machine(tmp_path, cgroup, **files))
    assert abs(found - expected) < 1024


def test_a_simulation_that_would_not_fit_is_refused_with_the_numbers(monkeypatch, tmp_path):
    """Two vectors of 800 kB a worker of asgd: 1.6 GB for a thousand, and a few kB for each."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(memory, "available_bytes", lambda: GB)
    with pytest.raises(ConfigError) as refusal:
        offbeat.train("quadratic", "asgd", 1000, budget="5updates", settings={"task.dim": 100_000})
    assert str(refusal.value) == (
        "1,000 simulated workers of asgd with vectors of 800kB need about 1.6GB of memory, but only 1GB are "
        "available: use fewer workers or, for their times alone, offbeat time"
    )
    assert not Path("runs").exists()
    assert offbeat.train("quadratic", "asgd", 100, budget="5updates", settings={"task.dim": 10_000}).status == "done"


def test_a_million_workers_are_counted_though_their_vectors_are_short(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 4 * GB)
    with pytest.raises(ConfigError, match=r"1,000,000 simulated workers .* need about 6.2GB"):
        offbeat.train("quadratic", "asgd", 1_000_000, budget="5updates", out=False)


def test_who_keeps_something_of_everybody_needs_the_square_of_it():
    plans = [build(make({"task": "quadratic", "solver.name": "ad-psgd", "cluster.workers": w})) for w in (1000, 10_000)]
    few, many = (ready.bytes_needed(plan) for plan in plans)
    assert many > 40 * few


# -- what solvers declare is what is seen ------------------------------------------------------------------------------

DIM = 500
BUSY = {
    "local-sgd": {"H": 2},
    "slowmo": {"H": 2},
    "diloco": {"H": 2},
    "async-diloco": {"steps": 2},
    "fedbuff": {"K": 3},
}
"""Options with which they meet within a few rounds."""


def vectors_alive() -> float:
    """How many vectors of the parameters' size the objects made since `gc.freeze` hold."""
    tensors = (o for o in gc.get_objects() if type(o) is torch.Tensor and o.numel() >= DIM)
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values()) / (8 * DIM)


class Counting(Stop):
    most = 0.0

    def tick(self) -> bool:
        self.most = max(self.most, vectors_alive())
        return super().tick()


def most_vectors(solver: str, workers: int) -> float:
    """At any event of a run in which messages take half as long as gradients."""
    options = {f"solver.{k}": v for k, v in BUSY.get(solver, {}).items()}
    cluster = {"cluster.workers": workers, "cluster.compute": "normal(10ms,3ms)", "cluster.latency": "5ms"}
    plan = build(make({"task": "quadratic", "task.dim": DIM, "solver.name": solver, **cluster, **options}))
    gc.collect()
    gc.freeze()
    try:
        engine = build_engine(plan, 0)
        counting = Counting(ticks=10 * workers).watch(engine)
        engine.run(counting)
        engine.close()
    finally:
        gc.unfreeze()
    return counting.most


@pytest.mark.slow
@pytest.mark.parametrize("solver", [s for s in SOLVERS if s not in ("plain", "constant-delay")])
def test_a_solver_keeps_as_many_vectors_of_a_worker_as_it_declares(solver):
    seen = (most_vectors(solver, 9) - most_vectors(solver, 4)) / 5
    assert seen - 0.75 <= solver_class(solver).vectors <= seen + 1.25
