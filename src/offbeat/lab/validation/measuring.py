"""The real half of a validation: every case is run, repeated, and its evidence kept."""

import os
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from offbeat.core.errors import OffbeatError
from offbeat.folders.description import Name, Number, Workers
from offbeat.folders.run_files import RunFiles
from offbeat.lab.config import make
from offbeat.lab.fitting.evidence import Evidence, of_run
from offbeat.lab.runs.conditions import cores
from offbeat.lab.runs.execute import execute
from offbeat.lab.runs.plan import build
from offbeat.lab.validation.cases import TARGET, RealCase
from offbeat.lab.validation.outcome import Outcome, of_real

Say = Callable[[str], object]
CarryOut = Callable[[RealCase, dict[str, Any], Path], object]
"""Runs a case, which has this configuration, in a folder; one that is there already is only looked at."""


def here(case: RealCase, values: dict[str, Any], folder: Path) -> None:
    """From this process."""
    execute(build(make(values)), folder, pass_on=True)


class CaseRuns:
    """The runs of one case."""

    def __init__(self, case: RealCase, workers: int) -> None:
        self.case, self.workers = case, workers
        self.evidence: list[Evidence] = []
        self.outcomes: list[Outcome] = []


def measure(
    cases: Sequence[RealCase],
    folder: Path,
    *,
    seconds: float,
    repeats: int,
    engine: str,
    say: Say,
    carry_out: CarryOut = here,
) -> tuple[list[CaseRuns], dict[str, str]]:
    """All cases, and why some could not be run. A run that is there already is not run again.

    Repeats go round: what the machine does besides falls on all cases alike.
    """
    found = {case.name: CaseRuns(case, case.workers(cores())) for case in cases}
    left_out: dict[str, str] = {}
    for seed in range(repeats):
        for case in cases:
            if case.name in left_out:
                continue
            say(f"run {seed + 1} of {repeats}: {case.name}")
            place = folder_of(folder, case, seconds, seed)
            try:
                carry_out(case, case.values(cores(), seconds, seed, engine), place)
                run = RunFiles.open(place)
                found[case.name].evidence.append(of_run(run))
                found[case.name].outcomes.append(of_real(run, TARGET))
            except OffbeatError as e:
                left_out[case.name] = str(e)
    return [m for name, m in found.items() if name not in left_out and m.outcomes], left_out


def folder_of(folder: Path, case: RealCase, seconds: float, seed: int) -> Path:
    return folder / f"{case.name.replace(', ', '-').replace(' ', '-')}-{seconds:g}s-{seed}"


class Conditions(Struct):
    """The machine and what it is doing: figures of a busy one are not worth much."""

    when: Name
    cores: Workers
    processor: Name
    load: Annotated[list[Number], Meta(min_length=1, max_length=3)]
    """Waiting processes, in the mean of 1, 5 and 15 minutes."""


def conditions() -> Conditions:
    """As they are now."""
    now, load = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), [round(v, 2) for v in os.getloadavg()]
    return Conditions(now, cores(), _processor(), load)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
