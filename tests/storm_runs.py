"""A small run of any solver on any engine, with every kind of file, to be killed at its file operations.

`python tests/storm_runs.py FOLDER ENGINE SOLVER KIND TIME AFTER` is a driver that is killed at one of them, for good.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from harness import cluster, mlp_task
from offbeat.core.budget import Amount, Budget
from offbeat.core.trace import Row
from offbeat.engines.real.recovery import recoverable
from offbeat.folders.run_files import RunFiles, rows
from offbeat.lab.engines import ForTests
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import Plan
from offbeat.lab.runs.result import Run
from offbeat.lab.studies.replaying import replay
from real import ONE_OF_EACH
from resumption import ELASTIC, check_books
from strikes import At, Disk, contents, struck

BATCHES = 4
"""Of each worker, on a real engine."""


def plan(case: Any, engine: str = "sim", task: Any = None) -> Plan:
    """A simulation of a few updates; on a real engine each worker has a part of its own to do."""
    simulated = engine == "sim"
    share = Budget(Amount(4 * BATCHES * case.workers, "samples"), per="worker")
    return Plan(
        mlp_task(fingerprint="storm") if task is None else task,
        case.make(),
        cluster(case.workers, **({"compute": "lognormal(10ms,5ms)"} if simulated else {})),
        Budget.parse("3updates") if simulated else share,
        seed=3,
        batch=8 if simulated else 4,
        evaluate_every=Amount(2, "updates") if simulated else Amount(16, "samples"),
        saves_per_epoch=20,
        diagnose_every=2 if simulated else None,
        engine=engine,
        solver_name=case.solver,
        config={"task": {"name": "storm"}, "solver": {"name": case.solver}},
        key=f"storm-{case.solver}",
    )


def run(made: Plan, folder: Path, starter: Any = None, seconds: float = 0.0) -> Run:
    """A checkpoint whenever there may be one."""
    return execute(made, folder, pool=0, checkpoint_seconds=seconds, for_tests=ForTests(launcher=starter))


def check_finished(made: Plan, case: Any, folder: Path) -> None:
    """All of it is there, nothing else is, and it is what a run makes that nothing happened to."""
    kept = RunFiles.open(folder)
    assert kept.status == "done", kept.info.why
    files = contents(folder)
    assert set(files) <= {*_MADE, *(n for n in files if n.startswith("saves/0"))}, sorted(files)
    assert len({mode for mode, value in files.values() if value != repr("folder")}) == 1
    loaded = Run.load(folder, task=made.task)
    trace = [Row(**r) for r in rows(kept.trace())]
    again = [r for r in trace if r.outcome == "lost" and r.samples] if case.solver in ELASTIC else []
    own = [r for r in trace if r.outcome != "received" and r.draw is not None and r not in again]
    check_books(case, own, [1 + max((r.draw for r in own if r.source == i), default=-1) for i in range(case.workers)])
    assert loaded.summary["updates"] > 0
    if made.engine not in ("sim", "threads") and recoverable(made.solver) and not again:
        found = replay(folder, plan=plan(case, made.engine))
        assert found["equal"], found


_MADE = ("arrivals.parquet", "best.safetensors", "diagnostics.parquet", "evaluation.json", "lock", "metrics.parquet")
_MADE += ("partition.json", "run.json", "saves", "trace.parquet", "vocabulary.txt", "weights.safetensors")


def main(folder: str, engine: str, name: str, kind: str, time: str, after: str) -> None:
    case = next(c for c in ONE_OF_EACH if str(c) == name)
    kills = Disk(At(kind, int(time)), after=bool(int(after)), deed=lambda: os.kill(os.getpid(), signal.SIGKILL))
    with struck(kills):
        run(plan(case, engine), Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
