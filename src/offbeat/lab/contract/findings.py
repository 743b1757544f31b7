"""`offbeat check`: what the contract finds, and what else can be said of any solver, on a solver of your own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from offbeat.core.errors import ConfigError
from offbeat.lab.contract import CHECKS, SGD, Broken, Case, advance, one_worker_is_the_optimizer_itself, trial
from offbeat.lab.contract.checks import PATIENCE
from offbeat.lab.contract.patience import not_for_ever
from offbeat.lab.contract.recorder import Bowl, Recorder
from offbeat.solvers import solver_class

Verdict = Literal["holds", "fails", "does not apply", "note"]


@dataclass(frozen=True)
class Finding:
    """One check and what came of it, in words."""

    check: str
    verdict: Verdict
    words: str = ""


def check(name: str, options: Mapping[str, Any], *, workers: int = 3) -> Iterator[Finding]:
    """Runs every check on the solver with these options, and goes on after one that fails."""
    kind = solver_class(name)
    case = Case(name, options, workers)
    case.make()  # a wrong hyper-parameter is bad input, and no finding
    for what in ("line", "paper"):
        if not isinstance(getattr(kind, what, None), str):
            yield Finding("it introduces itself", "note", f"no attribute {what!r}: `offbeat list` would show nothing")
    if not (kind.__doc__ or "").strip():
        yield Finding("it introduces itself", "note", "no docstring: give its formula and where it comes from")
    for sentence, run in CHECKS.items():
        if run is one_worker_is_the_optimizer_itself:
            continue
        yield _finding(sentence, run, case)
    yield _finding("it descends", it_descends, case)
    if _hides_staleness(case):
        words = "Grad carries a version and Applied does not: yield Applied(worker, gradient, version), with how many"
        yield Finding("staleness", "note", f"{words} updates came before; without it no staleness is shown")
    yield _alone(name, options)


def _hides_staleness(case: Case) -> bool:
    """Whether points have versions, and nobody says at which version their gradients are used."""
    recorder = Recorder(case.make())
    try:
        with not_for_ever():
            advance(trial(case, solver=recorder), case.events)
    except Exception:
        return False  # the checks have said what is wrong
    announced = [*recorder.announced_by_server, *recorder.announced_by_workers]
    return recorder.reads_versions and bool(announced) and all(a.version is None for a in announced)


def it_descends(case: Case) -> None:
    """Without noise, at a learning rate of 0.05, the loss of a bowl halves within 400 updates."""
    task = Bowl(noise=0.0)
    sim = trial(case, task)
    advance(sim, PATIENCE * 400, updates=400)
    first, last = (task.loss(x) for x in (sim.initial.x, sim.point.x))
    if not last < first / 2:
        raise Broken(f"the loss of a bowl goes from {first:.4g} to {last:.4g} in {sim.updates} updates")


def _finding(sentence: str, run: Any, case: Case) -> Finding:
    try:
        with not_for_ever():
            reason = run(case)
    except Broken as e:
        return Finding(sentence, "fails", str(e))
    except ConfigError as e:
        return Finding(sentence, "does not apply", f"the solver refuses: {e}")
    except Exception as e:
        return Finding(sentence, "fails", f"{type(e).__name__}{_where(e)}: {' '.join(str(e).split())[:300]}")
    return Finding(sentence, "holds") if reason is None else Finding(sentence, "does not apply", reason)


def _alone(name: str, options: Mapping[str, Any]) -> Finding:
    """Not every method is its optimizer with one worker; say which it is."""
    found = _finding("one worker", one_worker_is_the_optimizer_itself, Case(name, options, 1, alone=SGD))
    if found.verdict == "holds":
        return Finding("one worker", "note", "it is plain SGD, bit for bit")
    return Finding("one worker", "note", f"it is not plain SGD ({found.words}); right if that is meant")


def _where(error: Exception) -> str:
    """File and line of the innermost frame outside offbeat and torch, where the solver's own code is."""
    place, frame = "", error.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if "/offbeat/" not in file.replace("\\", "/") and "site-packages" not in file:
            place = f" at {file}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place
