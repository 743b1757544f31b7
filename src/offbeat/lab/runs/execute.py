"""One run, from plan to folder."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import pyarrow as pa

from offbeat.core.bits import usual_torch
from offbeat.core.errors import ConfigError, OffbeatError, StoreError
from offbeat.core.legible import legible
from offbeat.core.task import Point
from offbeat.engines.protocol import Engine
from offbeat.engines.real.control import RealEngine
from offbeat.folders.description import UNFINISHED, Description
from offbeat.folders.opening import there
from offbeat.lab.engines import ForTests, build_engine, entry
from offbeat.lab.runs.another_number import WishDesk
from offbeat.lab.runs.conditions import cores, interruptible
from offbeat.lab.runs.folder import Folder, metrics_table, trace_table, versions
from offbeat.lab.runs.plan import Plan
from offbeat.lab.runs.ready import check, try_out
from offbeat.lab.runs.result import Run
from offbeat.lab.runs.summary import summary
from offbeat.lab.runs.trust import named_code, signature
from offbeat.lab.watch import Watch, diagnose, ratio


def check_pool(pool: Any, what: str = "pool") -> None:
    """So many threads compute gradients; None: one a core."""
    if pool is not None and (isinstance(pool, bool) or not isinstance(pool, int) or pool < 0):
        raise ConfigError(f"{what} must be a number of threads from 0, got {pool!r}")


def execute(
    plan: Plan,
    out: Path | None,
    *,
    pool: int | None = None,
    again: bool = False,
    callbacks: Iterable[Any] = (),
    checkpoint_seconds: float = 30.0,
    progress: Callable[[Watch], None] | None = None,
    pass_on: bool = False,
    for_tests: ForTests | None = None,
) -> Run:
    """Runs the plan in folder `out` (None: in memory only); a finished run is shown, an unfinished one goes on.

    Ctrl-C ends it with the status "interrupted"; with `pass_on` it is raised as well, when everything is saved.
    """
    check_pool(pool)
    callbacks = list(callbacks)
    ours = not callbacks and not named_code(plan.config) and plan.config.get("from") != "python"

    def run(folder: Folder | None, resume: Description | None) -> Run:
        engine = partial(build_engine, plan, cores() if pool is None else pool, for_tests or ForTests())
        watch = partial(Watch, callbacks=callbacks, checkpoint_seconds=checkpoint_seconds, progress=progress)
        with _told_of_a_checkpoint(out) if resume is not None and ours else nullcontext():
            done, interrupted = _run(plan, engine, watch, folder, resume)
        if interrupted and pass_on:
            kept = "interrupted" if out is None else f"interrupted; {out} is saved, and the same call goes on"
            raise KeyboardInterrupt(kept)
        return done

    if out is None or not Folder(out).exists():
        try_out(plan)
    if out is None:
        return run(None, None)
    folder = Folder(out)
    folder.acquire()
    try:
        resume = None
        if folder.exists():
            info = folder.read()
            _check_same(plan, info, out, again)
            if again:
                try_out(plan)  # before what is there goes
            if not again and info.status not in UNFINISHED:
                folder.tidy()  # it may have been killed before it could
                return replace(Run.load(out, task=plan.task), shown=True)
            if not again and there(out, "checkpoint.safetensors"):
                _check_versions(info, out)
                check(plan)
                resume = info
        return run(folder, resume)
    finally:
        folder.release()


@contextmanager
def _told_of_a_checkpoint(out: Path | None) -> Iterator[None]:
    """A tree that was made to be wrong may be so only in use. Where all code is ours, that is one line, too."""
    try:
        yield
    except OffbeatError:
        raise
    except Exception as e:
        said = legible(f"{type(e).__name__}: {e}".splitlines()[0])[:300]
        raise StoreError(
            f"{out} went wrong after it was resumed ({said}): its checkpoint.safetensors is damaged or of another run, "
            "or this is a defect of offbeat; --again starts the run anew"
        ) from e


def _check_same(plan: Plan, info: Description, out: Path, again: bool) -> None:
    if again:
        return
    # Without an address, the words at least must be the same.
    told = plan.key is not None or info.config == json.loads(json.dumps(plan.config))
    if info.key != plan.key or not told:
        raise StoreError(
            f"{out} holds a run of another configuration: name another folder with --out, or replace it with --again"
        )
    if plan.key is None and info.status not in UNFINISHED:
        raise StoreError(
            f"{out} holds a finished run, and nobody can know whether of the same objects: give offbeat.task a "
            "fingerprint, name another folder, or replace it with again=True"
        )


def _check_versions(info: Description, out: Path) -> None:
    then, now = info.versions, versions()
    for name, called in (("torch", "torch "), ("offbeat", "offbeat "), ("cpu", "the processor ")):
        if name in then and then[name] != now[name]:  # older runs did not note the processor
            raise StoreError(
                f"{out} cannot be resumed: it was started with {called}{then.get(name)}, this is {now[name]}, and the "
                "bits would not be the same; --again starts it anew"
            )


def _run(
    plan: Plan,
    build: Callable[[], Engine],
    watching: Callable[[Plan, Engine, Folder | None], Watch],
    folder: Folder | None,
    resume: Description | None,
) -> tuple[Run, bool]:
    """The run, and whether somebody wanted it to end."""
    info = {
        "config": dict(plan.config),
        "key": plan.key,
        "seed": plan.seed,
        "versions": {**plan.packages, **versions()},
        "clock": entry(plan.engine).clock,
        "engine": plan.engine,
        "task": plan.task.describe(),
        "created": _now(),
        "signature": signature(plan.config),
    }
    if resume is not None:
        info |= {"versions": resume.versions, "created": resume.created}
    with usual_torch():
        engine = build()
        if folder is not None and isinstance(engine, RealEngine):
            engine.look_for_wishes = WishDesk(folder.path, engine).look
        watch = watching(plan, engine, folder)
        begun = False
        try:
            if resume is not None:
                assert folder is not None
                watch.restore(folder)
            else:
                watch.evaluate()  # the initial point, too
            if isinstance(engine, RealEngine):
                with interruptible(watch):
                    engine.open()
            if folder is not None:
                (folder.begin if resume is None else folder.write)({**info, "status": "running", "why": ""})
            begun = True
            if folder is not None and (balance := plan.balance()) is not None:
                folder.write_json("partition.json", balance)
            if resume is None:
                watch.save_first()
            with interruptible(watch):
                ended = engine.run(watch)
            return _close(plan, engine, watch, folder, info, ended), watch.interrupted
        except Exception as e:
            # What we refuse before anything has run leaves the folder as it was.
            if folder is not None and (begun or not isinstance(e, OffbeatError)):
                _write_failure(folder, info, e)
            raise
        finally:
            engine.close()


def _write_failure(folder: Folder, info: dict[str, Any], error: Exception) -> None:
    """What went wrong is in the folder too; where that cannot be written, the error itself is what counts."""
    why = str(error) if isinstance(error, OffbeatError) else f"{type(error).__name__}: {error}"
    with suppress(StoreError):
        folder.write({**info, "status": "failed", "why": why})


def _close(plan: Plan, engine: Engine, watch: Watch, folder: Folder | None, info: dict[str, Any], ended: str) -> Run:
    if watch.why == "interrupted":  # Ctrl-C in the last evaluation comes too late
        watch.checkpoint()
        return _written(plan, engine, watch, folder, info, "interrupted")
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
        staleness = ratio(watch.total.staleness, watch.total.stale)
        why = diagnose.cause(plan.task, plan.feed(), plan.seed, _group(engine), staleness)
        watch.why = f"{watch.why}; {why}" if watch.why else why
    if folder is not None:
        _write_results(plan, engine, watch, folder)
        info = {**info, "task": watch.about_task, "ended": _now()}
    run = _written(plan, engine, watch, folder, info, status)
    if folder is not None:
        folder.tidy()
    return run


def _write_results(plan: Plan, engine: Engine, watch: Watch, folder: Folder) -> None:
    """Everything but run.json, which says that it is all there."""
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


def _written(plan: Plan, engine: Engine, watch: Watch, folder: Folder | None, info: dict[str, Any], status: str) -> Run:
    """Closes run.json with the summary, and the run as it is in memory."""
    found = summary(plan, engine, watch, status)
    trace = trace_table(engine.rows)
    if folder is not None:
        folder.write({**info, "status": status, "why": watch.why, "summary": found})
        if watch.parts:  # what was written on the way is no longer in memory
            trace = pa.concat_tables([*folder.read_parts(watch.parts), trace])
    return Run(
        path=None if folder is None else folder.path,
        status=status,
        why=watch.why,
        summary={**found, "run": None if folder is None else str(folder.path)},
        config=info["config"],
        metrics=metrics_table(watch.metrics),
        trace=trace,
        point=engine.point,
        best=watch.best,
        task=plan.task,
        ended=info.get("ended"),
    )


def _write_weights(folder: Folder, name: str, plan: Plan, point: Point) -> None:
    segments = [s.name for s in plan.task.layout.segments]
    tensors = {f"param.{n}": v for n, v in zip(segments, plan.task.layout.views(point.x), strict=True)}
    tensors.update({f"buffer.{n}": b for n, b in (point.buffers or {}).items()})
    folder.write_tensors(name, tensors, json.dumps({"segments": segments}))


def _group(engine: Engine) -> dict[str, Any] | None:
    group = engine.optimizer_options
    if group is None:
        return None
    # Where the momentum is the solver's own, the optimizer beneath it is plain SGD.
    own = {k: getattr(engine.solver, k) for k in ("momentum", "nesterov") if hasattr(engine.solver, k)}
    return {**group, **own}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
