"""docs/validated.md: what a validation found, written from its results."""

from collections.abc import Iterator, Sequence

import numpy as np

from offbeat.core.units import counted
from offbeat.lab.validation.cases import CASES
from offbeat.lab.validation.link_cases import LINK_CASES
from offbeat.lab.validation.links_page import about, how, what_was_found
from offbeat.lab.validation.predicting import LEVEL, Prediction
from offbeat.lab.validation.validate import Validation

_HEAD = """# How true the simulator is

Written by `offbeat validate --markdown docs/validated.json`; a test compares. `offbeat validate` measures it again, on
your machine.

A fixed set of configurations is run on real processes. A cluster is fitted to one half of them (as `offbeat calibrate`
does), and the simulator predicts the other half, which it has not seen.
"""
_WHATS = ("throughput", "time to target", "waiting", "staleness")
_BUSY = 0.5  # of the cores: a load above it, before anything was started, is a busy machine


def markdown(found: Validation) -> str:
    """The page: what was run on this machine's processes, then what was run on hosts with slow links, if it was."""
    parts = [_HEAD]
    if found.fitted:
        parts += [*_conditions(found, len(CASES)), *_verdict(found), *_tables(found), *_method(found)]
    if found.links is not None:
        parts += _slow_links(found.links)
    return "\n".join(parts).rstrip() + "\n"


def _slow_links(found: Validation) -> Iterator[str]:
    yield from about(found)
    yield from _conditions(found, len(LINK_CASES), "###")
    yield from _verdict(found, "###")
    yield from what_was_found(found)
    yield from _tables(found, "###")
    yield from how()


def _conditions(found: Validation, cases: int, level: str = "##") -> Iterator[str]:
    b, a = found.before, found.after
    loads = f"{b.load[0]:g} before and {a.load[0]:g} after"
    yield f"{level} What the machine was doing\n"
    yield (
        f"{b.when} to {a.when}, {b.processor}, {counted(b.cores, 'core')}, engine {found.engine}, offbeat "
        f"{found.version}. Load (waiting processes, mean of a minute): {loads}. Each case was run "
        f"{counted(found.repeats, 'time')} for {found.seconds:g} s.\n"
    )
    ran = len({*found.fitted, *(r.case for r in found.rows)})
    if ran < cases:
        yield f"Only {ran} of the {cases} cases were run.\n"
    if b.load[0] > _BUSY * b.cores:
        yield (
            "**The machine was busy with other work, which came and went.** These figures show that the command works, "
            "and how its output reads; they say little about the simulator. Run it on a quiet machine.\n"
        )


def _verdict(found: Validation, level: str = "##") -> Iterator[str]:
    yield f"{level} In short\n"
    rows = [r for r in found.rows if r.what == "throughput" and r.error is not None]
    if not rows:
        yield "Nothing could be compared.\n"
        return
    errors = [abs(r.error or 0.0) for r in rows]
    noise = [r.noise for r in rows if r.noise is not None]
    floor = f"; between two equal real runs: {np.median(noise):.1%}" if noise else ""
    yield f"- Throughput: median absolute error **{np.median(errors):.1%}** over {counted(len(rows), 'case')}{floor}."
    yield "- The aim: at most 5%, and intervals of 90% that hold in 80 to 97% of the cases."
    judged = [r for r in found.rows if r.inside is not None]
    if judged:
        inside = sum(bool(r.inside) for r in judged)
        held = f"{inside} of {len(judged)}, {inside / len(judged):.0%}"
        of = ", ".join(dict.fromkeys(r.what for r in judged))
        yield f"- The truth lay inside the {LEVEL:.0%} interval in **{held}** ({of})."
    yield ""


def _tables(found: Validation, level: str = "##") -> Iterator[str]:
    yield f"Fitted to: {'; '.join(found.fitted)}.\n"
    for what in _WHATS:
        rows = [r for r in found.rows if r.what == what]
        if rows:
            yield from _table(what, rows, found.target, level)
    if found.left_out:
        yield f"{level} What could not be run\n"
        yield from (f"- {name}: {why}" for name, why in found.left_out.items())
        yield ""


def _table(what: str, rows: Sequence[Prediction], target: str, level: str) -> Iterator[str]:
    titles = {
        "throughput": "Throughput (samples a second)",
        "time to target": f"Time to {target} (seconds)",
        "waiting": "Waiting (share of the workers' time)",
        "staleness": "Staleness (distance of the distributions)",
    }
    yield f"{level} {titles[what]}\n"
    if what == "staleness":
        yield "The share of gradients that would have to be moved to make one distribution of the other.\n"
        yield "| case | workers | predicted to real | real to real |"
        yield "|---|---:|---:|---:|"
        for r in rows:
            yield f"| {r.case} | {r.workers} | {_share(r.predicted)} | {_share(r.noise)} |"
    else:
        yield f"| case | workers | real | predicted | error | noise | {LEVEL:.0%} interval | inside |"
        yield "|---|---:|---:|---:|---:|---:|---:|---|"
        for r in rows:
            form = _share if what == "waiting" else _number
            span = "-" if r.low is None else f"{form(r.low)} to {form(r.high)}"
            inside = {None: "-", True: "yes", False: "**no**"}[r.inside]
            error = "-" if r.error is None else f"{100 * r.error:+.1f}{' points' if what == 'waiting' else '%'}"
            cells = [r.case, r.workers, form(r.real), form(r.predicted), error, _share(r.noise), span, inside]
            yield f"| {' | '.join(map(str, cells))} |"
    yield ""


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _method(found: Validation) -> Iterator[str]:
    yield "## How\n"
    yield (
        "- **Error** is predicted over real, less 1; of waiting, the difference. **Noise** is the standard deviation "
        "of equal real runs (over their mean, but for waiting): nothing can be predicted better than that."
    )
    yield (
        "- **Intervals**: each case of the fitted half is left out in turn and predicted from the others; Student's "
        "quantile times the root mean square of these errors. Of times to a target, the scatter over seeds is added."
    )
    if found.links is None:
        yield "- **Not covered**: slow links between hosts (`offbeat validate --links`), and more machines than one.\n"
    else:
        yield "- **Not covered**: more machines than one.\n"
