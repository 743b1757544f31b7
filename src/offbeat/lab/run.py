"""One run, from plan to folder."""

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from offbeat.core.errors import OffbeatError, StoreError
from offbeat.core.task import Point
from offbeat.engines.engine import Engine
from offbeat.engines.pool import single_threaded
from offbeat.lab import diagnose
from offbeat.lab.engines import build_engine, clock_of
from offbeat.lab.folder import UNFINISHED, Folder, metrics_table, trace_table, versions
from offbeat.lab.plan import Plan
from offbeat.lab.result import Run
from offbeat.lab.watch import Watch, ratio


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def execute(
    plan: Plan,
    out: Path | None,
    *,
    pool: int | None = None,
    again: bool = False,
    callbacks: Iterable[Any] = (),
    checkpoint_seconds: float = 30.0,
    progress: Callable[[Watch], None] | None = None,
) -> Run:
    """Runs the plan in folder `out` (None: in memory only); a finished run is shown, an unfinished one goes on."""
    if out is None:
        return _run(plan, None, None, pool, callbacks, checkpoint_seconds, progress)
    folder = Folder(out)
    folder.acquire()
    try:
        resume = None
        if folder.exists():
            info = folder.read()
            _check_same(plan, info, out, again)
            if again:
                folder.clear()
            elif info["status"] not in UNFINISHED:
                return Run.load(out, task=plan.task)
            elif (out / "checkpoint.safetensors").exists():
                _check_versions(info, out)
                resume = info
            else:
                folder.clear()
        return _run(plan, folder, resume, pool, callbacks, checkpoint_seconds, progress)
    finally:
        folder.release()


def _check_same(plan: Plan, info: dict[str, Any], out: Path, again: bool) -> None:
    if not again and info.get("key") != plan.key:
        raise StoreError(
            f"{out} holds a run of another configuration: name another folder with --out, or replace it with --again"
        )


def _check_versions(info: dict[str, Any], out: Path) -> None:
    then, now = info.get("versions", {}), versions()
    for name in ("torch", "offbeat"):
        if then.get(name) != now[name]:
            raise StoreError(
                f"{out} cannot be resumed: it was started with {name} {then.get(name)}, this is {now[name]}; "
                "--again starts it anew"
            )


def _run(
    plan: Plan,
    folder: Folder | None,
    resume: dict[str, Any] | None,
    pool: int | None,
    callbacks: Iterable[Any],
    checkpoint_seconds: float,
    progress: Callable[[Watch], None] | None,
) -> Run:
    info = resume or {
        "config": dict(plan.config),
        "key": plan.key,
        "seed": plan.seed,
        "versions": versions(),
        "clock": clock_of(plan),
        "engine": plan.engine,
        "task": plan.task.describe(),
        "created": _now(),
    }
    with _one_thread():
        engine = build_engine(plan, cores() if pool is None else pool)
        watch = Watch(
            plan, engine, folder, callbacks=callbacks, checkpoint_seconds=checkpoint_seconds, progress=progress
        )
        try:
            if resume is not None:
                assert folder is not None
                watch.restore(folder)
            else:
                watch.start()
            if folder is not None:
                if (balance := plan.balance()) is not None:
                    folder.write_json("partition.json", balance)
                folder.write({**info, "status": "running", "why": ""})
            with _interruptible(watch):
                ended = engine.run(watch)
            return _close(plan, engine, watch, folder, info, ended)
        except OffbeatError:
            raise
        except Exception as e:
            if folder is not None:
                folder.write({**info, "status": "failed", "why": f"{type(e).__name__}: {e}"})
            raise
        finally:
            engine.close()


def _close(plan: Plan, engine: Engine, watch: Watch, folder: Folder | None, info: dict[str, Any], ended: str) -> Run:
    if watch.why == "interrupted":  # Ctrl-C in the last evaluation comes too late
        status = "interrupted"
        if folder is not None:
            watch.checkpoint()
        info = {**info, "status": status, "why": watch.why, "summary": _summary(plan, engine, watch, status)}
        if folder is not None:
            folder.write(info)
        return _result(plan, engine, watch, folder, info, status)
    status = "done"
    if ended == "seconds":
        watch.why = f"budget of {plan.budget.amount} reached"
    elif ended == "idle":
        finite = plan.cluster.schedule is not None or plan.budget.per == "worker"
        status = "done" if finite else "failed"
        watch.why = "every worker has finished" if finite else "no worker is left that could go on"
    engine.finish()
    watch.close_books()
    last = watch.metrics[-1]
    if last["samples"] != engine.samples or last["updates"] != engine.updates:
        last = watch.evaluate()
    if watch.diverged or any(last[k] is not None and not isfinite(last[k]) for k in ("loss", "weight_norm")):
        status = "diverged"
        group = _group(engine)
        staleness = ratio(watch.total.staleness, watch.total.stale)
        why = diagnose.cause(plan.task, plan.feed(), plan.seed, group, staleness)
        watch.why = f"{watch.why}; {why}" if watch.why else why
    summary = _summary(plan, engine, watch, status)
    if folder is not None:
        folder.merge_parts(watch.parts, engine.rows, engine.journal)
        folder.write_table("metrics.parquet", metrics_table(watch.metrics))
        if watch.fresh is not None:
            folder.write_table("diagnostics.parquet", metrics_table(watch.fresh.rows))
        _write_weights(folder, "weights.safetensors", plan, engine.point)
        for name, text in getattr(plan.task, "files", dict)().items():  # a vocabulary
            folder.write_text(name, text)
        if watch.best is not None:
            _write_weights(folder, "best.safetensors", plan, watch.best)
        if hasattr(plan.task, "assess") and (scores := plan.task.assess(engine.point, engine.pool.map)):
            folder.write_json("evaluation.json", scores)
        info = {**info, "task": plan.task.describe()}  # with what was found out on the way
        folder.write({**info, "status": status, "why": watch.why, "ended": _now(), "summary": summary})
        folder.tidy()
    return _result(plan, engine, watch, folder, {**info, "summary": summary}, status)


def _result(plan: Plan, engine: Engine, watch: Watch, folder: Folder | None, info: dict[str, Any], status: str) -> Run:
    if folder is not None and status != "interrupted":
        return Run.load(folder.path, task=plan.task)
    summary = info.get("summary") or _summary(plan, engine, watch, status)
    return Run(
        path=None if folder is None else folder.path,
        status=status,
        why=watch.why,
        summary={**summary, "run": None if folder is None else str(folder.path)},
        config=info["config"],
        metrics=metrics_table(watch.metrics),
        trace=trace_table(engine.rows),
        point=engine.point,
        best=watch.best,
        task=plan.task,
    )


def _summary(plan: Plan, engine: Engine, watch: Watch, status: str) -> dict[str, Any]:
    total, last = watch.total, watch.metrics[-1]
    wall = watch.wall_before + time.monotonic() - watch.wall_started
    shares = engine.breakdown()
    present = sum(w["present"] for w in shares)
    chance = getattr(plan.task, "chance", None)
    accuracy = last["accuracy"]
    target = plan.budget.until
    return {
        "status": status,
        "why": watch.why,
        "task": plan.task.name,
        "solver": plan.solver_name,
        "workers": plan.cluster.workers,
        "seed": plan.seed,
        "batch": plan.batch,
        "global_batch": plan.batch * plan.cluster.workers,
        "updates": engine.updates,
        "samples": engine.samples,
        "samples_applied": engine.samples_applied,
        "epochs": engine.samples / plan.task.size if plan.task.size else None,
        "loss": last["loss"],
        "accuracy": accuracy,
        "train_loss": next((m["train_loss"] for m in reversed(watch.metrics) if m["train_loss"] is not None), None),
        "best": watch.best_value,
        "stalled": bool(accuracy is not None and chance is not None and accuracy <= chance * 1.05),
        "target": None if target is None else str(target),
        "time_to_target": None if target is None else target.time(watch.metrics),
        "mean_staleness": ratio(total.staleness, total.stale),
        "max_staleness": total.max_staleness if total.stale else None,
        "engine": plan.engine,
        "virtual_seconds": engine.now if engine.clock == "virtual" else None,
        "wall_seconds": wall if engine.clock == "virtual" else engine.now,
        "samples_per_second": ratio(engine.samples, wall if engine.clock == "virtual" else engine.now),
        "computing_share": ratio(sum(w["computing"] for w in shares), present),
        "delayed_share": ratio(sum(w["delayed"] for w in shares), present),
        "communicating_share": ratio(sum(w["communicating"] for w in shares), present),
        "idle_share": ratio(sum(w["waiting"] for w in shares), present),
        "per_worker": shares,
        "server_busy_share": ratio(engine.served, engine.now),
        "server_queued_seconds": engine.queued,
        "bytes": engine.bytes,
        "lost_share": engine.lost_share,
        "incidents": list(engine.incidents),
        "lost_updates": engine.lost_updates,
        "params_sha256": params_sha256(engine.point.x),
    }


def params_sha256(x: torch.Tensor) -> str:
    """Of the float32 parameters, so that two runs can be compared by eye."""
    return hashlib.sha256(x.detach().to(torch.float32).cpu().numpy().tobytes()).hexdigest()


def _write_weights(folder: Folder, name: str, plan: Plan, point: Point) -> None:
    segments = [s.name for s in plan.task.layout.segments]
    tensors = {f"param.{n}": v for n, v in zip(segments, plan.task.layout.views(point.x), strict=True)}
    tensors.update({f"buffer.{n}": b for n, b in (point.buffers or {}).items()})
    folder.write_tensors(name, tensors, json.dumps({"segments": segments}))


def _group(engine: Engine) -> dict[str, Any] | None:
    group = engine.optimizer_group
    if group is None:
        return None
    # Where the momentum is the solver's own, the optimizer beneath it is plain SGD.
    own = {k: getattr(engine.solver, k) for k in ("momentum", "nesterov") if hasattr(engine.solver, k)}
    return {**group, **own}


@contextmanager
def _one_thread() -> Iterator[None]:
    """One intra-op thread for the time of the run: more would change bits. This thread computes gradients, too."""
    before = torch.get_num_threads()
    single_threaded()
    try:
        with torch.inference_mode(False), torch.autocast("cpu", enabled=False):  # whatever the caller is in
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _interruptible(watch: Watch) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run at the next event; a second Ctrl-C ends it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        if watch.interrupted:
            raise KeyboardInterrupt
        watch.interrupted = True

    before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
