"""`offbeat validate`: how far the simulator is from this machine, on configurations that it was not fitted to."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from offbeat import __version__
from offbeat.core.errors import ConfigError
from offbeat.core.units import parse_duration
from offbeat.folders.plain_values import read_json
from offbeat.folders.writing import write_file
from offbeat.lab.validation.cases import TARGET, chosen
from offbeat.lab.validation.measuring import Say, conditions, measure
from offbeat.lab.validation.predicting import Prediction, compare

FILE = "validation.json"


class Validation(Struct):
    """What was found, under which conditions. `str` is the page docs/validated.md."""

    version: str
    engine: str
    seconds: float
    repeats: int
    target: str
    before: dict[str, Any]
    """The machine, and its load, before the first run."""
    after: dict[str, Any]
    fitted: list[str]
    rows: list[Prediction]
    left_out: dict[str, str] = {}

    def __str__(self) -> str:
        from offbeat.lab.validation.validated_page import markdown

        return markdown(self)

    def save(self, path: Path) -> None:
        data = msgspec.json.format(msgspec.json.encode(self), indent=1)
        write_file(path, lambda file: file.write(data + b"\n"))


def load(path: Path) -> Validation:
    """A validation that was stored."""
    return read_json(path.parent, path.name, Validation)


def validate(
    *,
    seconds: str | float = "20s",
    repeats: int = 3,
    only: str | None = None,
    engine: str = "local",
    training: bool = True,
    out: str | Path = "validation",
    say: Say = lambda line: None,
) -> Validation:
    """Runs the fixed set of cases for real, fits to one half, and predicts the other.

    Args:
        seconds: of each run.
        repeats: of each case, with seeds 0, 1, ...
        only: cases of these names, or with these words in their names, separated by semicolons.
        engine: of the real runs: local, or ray (on the machines of a cluster).
        training: whether the time to a target is predicted, too, which takes a training in virtual time for each run.
        out: the folder; runs that are there already are not run again.
        say: told what is being done.
    """
    each = parse_duration(seconds, "seconds")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or not 1 <= repeats <= 1000:
        raise ConfigError(f"repeats must be a whole number from 1 to 1,000, got {repeats!r}")
    if each <= 0:
        raise ConfigError(f"seconds must be above 0, got {seconds!r}")
    if engine not in ("local", "ray"):
        raise ConfigError(f"engine must be local or ray, got {engine!r}")
    cases, place, before = chosen(only), Path(out), conditions()
    measured, left_out = measure(cases, place, seconds=each, repeats=repeats, engine=engine, say=say)
    after = conditions()
    rows = compare(measured, each, say, training=training)
    fitted = [m.case.name for m in measured if m.case.half == "fit"]
    found = Validation(__version__, engine, each, repeats, TARGET, before, after, fitted, rows, left_out)
    found.save(place / FILE)
    return found
