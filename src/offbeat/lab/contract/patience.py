"""How long a check waits for a rule: one that never lets time pass must not be waited for for ever."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from offbeat.core.effects import Applied, Push, Received, Refused, Send, Stepped, Unlock
from offbeat.core.solver import Round
from offbeat.lab.contract.case import Broken

MOST = 10_000
"""So many steps of a rule at one instant are too many."""
_AT_ONCE = (Applied, Refused, Received, Stepped, Send, Push, Unlock)
"""What a rule may yield without any time passing."""


SECONDS = 60.0
"""Of this process's own computing, however busy the machine is: so much for one check is too much."""


@contextmanager
def not_for_ever() -> Iterator[None]:
    """A rule that loops and yields nothing is interrupted. Elsewhere than in the main thread, nobody can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        where = f" (in {frame.f_code.co_name}, line {frame.f_lineno})" if frame is not None else ""
        raise Broken(f"it has computed for {SECONDS:g} s and has no end{where}")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def limited(solver: Any) -> Any:
    """The same solver, which is stopped, in words, where it goes on without end and without any time passing."""
    solver.round = _round(solver.round)
    for name in ("on_call", "on_message", "on_join", "on_lost"):
        setattr(solver, name, _handler(name, getattr(solver, name)))
    return solver


def _round(rule: Callable[[Any], Round]) -> Callable[[Any], Round]:
    steps = 0  # since something was asked for that takes time

    def step(effect: Any) -> None:
        nonlocal steps
        steps = steps + 1 if effect is None or isinstance(effect, _AT_ONCE) else 0
        if steps > MOST:
            what = "ends its rounds" if effect is None else f"yields {type(effect).__name__}"
            raise Broken(f"a worker {what} again and again, and asks for nothing that takes time, such as Grad or Call")

    def watched(w: Any) -> Round:
        going, answer = rule(w), None
        while True:
            try:
                effect = going.send(answer)
            except StopIteration:
                step(None)
                return
            step(effect)
            answer = yield effect

    return watched


def _handler(name: str, rule: Callable[..., Iterable[Any]]) -> Callable[..., Iterator[Any]]:
    def watched(*args: Any) -> Iterator[Any]:
        for n, effect in enumerate(rule(*args)):
            if n >= MOST:
                raise Broken(f"{name} has no end: after {n:,} effects it yields {type(effect).__name__}")
            yield effect

    return watched
