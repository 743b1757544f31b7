"""Steps from a trace in Chrome's JSON format: what Chrome, Perfetto and torch.profiler export, and `offbeat export`.

A trace is a list of events; a slice is one event with a length ("X"), or a pair of a beginning and an end ("B", "E").
Which slices are steps: those that `--steps` names, else torch.profiler's `ProfilerStep#7`, else our own gradients.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from offbeat.core.legible import legible
from offbeat.core.trace import APPLIED, REFUSED
from offbeat.folders.limits import MOST_VALUES
from offbeat.folders.steps import Steps

_TORCH = "ProfilerStep"
_US = 1e-6
_SHOWN = 6  # names that a complaint lists
_FINISHED = (None, APPLIED, REFUSED)
_MOST_SAMPLES = 2**31

Lane = tuple[str, str]
"""A process and a thread of it."""


class _Event(Struct, gc=False):
    """What is asked of an event; all else is passed over."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    ts: float | str = 0.0
    dur: float | str = 0.0
    pid: int | str | None = 0
    tid: int | str | None = 0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Distributed(Struct):
    rank: int | None = None


class _Trace(Struct):
    traceEvents: list[_Event]  # noqa: N815 - the format's own name
    distributedInfo: _Distributed | None = None  # noqa: N815


class _Told(Struct):
    """What our own export says of a gradient."""

    outcome: str | None = None
    samples: int | None = None


class _Slice(Struct, gc=False):
    name: str
    cat: str
    lane: Lane
    start: float
    length: float
    args: msgspec.Raw

    @property
    def told(self) -> _Told:
        try:
            return msgspec.json.decode(self.args, type=_Told)
        except msgspec.MsgspecError:
            return _Told()


def read(data: bytes, pattern: str | None = None) -> tuple[str, list[Steps]]:
    """What kind of trace it is, and the steps of each worker in it. ValueError says what is wrong with it."""
    trace = _parsed(data)
    slices = list(_slices(trace.traceEvents))
    kind, chosen = _steps(slices, pattern)
    first = min(s.start for s in chosen)
    lanes: dict[Lane, list[_Slice]] = {}
    for s in sorted(chosen, key=lambda s: s.start):
        lanes.setdefault(s.lane, []).append(s)
    rank = None if trace.distributedInfo is None else trace.distributedInfo.rank
    names = _names(trace.traceEvents)
    found = []
    for lane in sorted(lanes, key=_in_order):
        mine = lanes[lane]
        who = f"rank {rank}" if rank is not None and len(lanes) == 1 else names.get(lane, f"thread {lane[1]}")
        begun = np.array([s.start - first for s in mine]) * _US
        sizes = [s.told.samples or 0 for s in mine]
        samples = np.array(sizes) if all(0 < n < _MOST_SAMPLES for n in sizes) else None
        found.append(Steps(who, np.array([s.length for s in mine]) * _US, begun, samples))
    return kind, found


def _parsed(data: bytes) -> _Trace:
    if data.count(b"{") > MOST_VALUES:
        raise ValueError(f"it holds more than {MOST_VALUES:,} events")
    try:
        if data.lstrip()[:1] == b"[":
            return _Trace(msgspec.json.decode(data, type=list[_Event]))
        return msgspec.json.decode(data, type=_Trace)
    except msgspec.ValidationError as e:
        raise ValueError(f"it is no trace in Chrome's format: {legible(e)}") from None
    except msgspec.DecodeError as e:
        raise ValueError(f"it is not JSON: {legible(e)}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _slices(events: Sequence[_Event]) -> Iterator[_Slice]:
    """Those with a length, and pairs of a beginning and an end of one thread, innermost first."""
    open_: dict[Lane, list[_Event]] = {}
    for e in events:
        lane = (str(e.pid), str(e.tid))
        if e.ph == "X":
            yield _Slice(e.name, e.cat, lane, _number(e.ts), _number(e.dur), e.args)
        elif e.ph == "B":
            open_.setdefault(lane, []).append(e)
        elif e.ph == "E" and open_.get(lane):
            begun = open_[lane].pop()
            start = _number(begun.ts)
            yield _Slice(begun.name, begun.cat, lane, start, _number(e.ts) - start, begun.args)


def _number(value: float | str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"a time must be a number of microseconds, got {legible(str(value)[:40])!r}") from None


def _steps(slices: Sequence[_Slice], pattern: str | None) -> tuple[str, list[_Slice]]:
    if pattern is not None:
        found = [s for s in slices if fnmatchcase(s.name, pattern)]
        if found:
            return "trace", found
        raise ValueError(f"no slice is called {legible(pattern)!r}; {_commonest(slices)}")
    ways: tuple[tuple[str, Callable[[_Slice], bool]], ...] = (
        ("torch.profiler", lambda s: s.name.startswith(_TORCH) and not s.cat.startswith("gpu")),
        ("trace", lambda s: s.cat == "gradient" and s.told.outcome in _FINISHED),
    )
    for kind, is_step in ways:
        if found := [s for s in slices if is_step(s)]:
            return kind, found
    raise ValueError(f"which slices are steps? Name them with --steps; {_commonest(slices)}")


def _commonest(slices: Sequence[_Slice]) -> str:
    counts = Counter(s.name for s in slices).most_common(_SHOWN)
    return "it has " + (", ".join(f"{legible(n[:60])!r} ({k} times)" for n, k in counts) or "no slices")


def _names(events: Sequence[_Event]) -> dict[Lane, str]:
    """What threads are called, by their metadata."""
    found: dict[Lane, str] = {}
    for e in events:
        if e.ph == "M" and e.name == "thread_name":
            told: Any = msgspec.json.decode(e.args)
            name = told.get("name") if isinstance(told, dict) else None
            if isinstance(name, str):
                found[str(e.pid), str(e.tid)] = legible(name[:60])
    return found


def _in_order(lane: Lane) -> tuple[tuple[int, int, str], ...]:
    """Numbers before names, by size."""
    return tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in lane)
