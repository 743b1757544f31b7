"""`offbeat validate`: how far the simulator is from this machine, on configurations that it was not fitted to."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from offbeat import __version__
from offbeat.core.errors import ConfigError, StoreError
from offbeat.core.units import parse_duration
from offbeat.folders.description import Name, Seconds
from offbeat.folders.plain_values import read_json
from offbeat.folders.writing import make_folder, write_file
from offbeat.lab.validation.cases import TARGET, chosen
from offbeat.lab.validation.link_cases import LINK_CASES
from offbeat.lab.validation.measuring import Conditions, Say, conditions, measure
from offbeat.lab.validation.on_slow_links import FoundLinks, found_links, measure_on_hosts, on_the_processor
from offbeat.lab.validation.predicting import Prediction, check_fitted, compare

FILE = "validation.json"
MOST_REPEATS = 1000


class Validation(Struct):
    """What was found, under which conditions. `str` is the page docs/validated.md."""

    version: Name
    engine: Name
    seconds: Seconds
    repeats: Annotated[int, Meta(ge=1, le=MOST_REPEATS)]
    target: Name
    before: Conditions
    """The machine, and its load, before the first run."""
    after: Conditions
    fitted: list[Name]
    rows: list[Prediction]
    left_out: dict[str, str] = {}
    found: dict[str, FoundLinks] = {}
    """What was fitted to links whose rates are known."""
    processor: dict[str, float] = {}
    """By case on slow links, the share of a round that no link had to do with."""
    links: "Validation | None" = None
    """The same on hosts with slow links between them, where that was done, too."""

    def __str__(self) -> str:
        from offbeat.lab.validation.validated_page import markdown

        return markdown(self)

    def save(self, path: Path) -> None:
        data = msgspec.json.format(msgspec.json.encode(self), indent=1)
        write_file(path, lambda file: file.write(data + b"\n"))


def load(path: Path) -> Validation:
    """A validation that was stored."""
    try:
        return read_json(path.parent, path.name, Validation)
    except FileNotFoundError:
        raise StoreError(f"{path} is not there") from None


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
    each = _checked(seconds, repeats)
    if engine not in ("local", "ray"):
        raise ConfigError(f"engine must be local or ray, got {engine!r}")
    cases, place = chosen(only), Path(out)
    check_fitted(cases)
    make_folder(place)
    before = conditions()
    measured, left_out = measure(cases, place, seconds=each, repeats=repeats, engine=engine, say=say)
    if left_out and not measured:
        raise StoreError(f"no case could be run: {next(iter(left_out.values()))}")
    after = conditions()
    rows = compare(measured, each, say, training=training)
    fitted = [m.case.name for m in measured if m.case.half == "fit"]
    found = Validation(__version__, engine, each, repeats, TARGET, before, after, fitted, rows, left_out)
    found.links = _stored(place).links
    found.save(place / FILE)
    return found


def validate_links(
    *,
    seconds: str | float = "20s",
    repeats: int = 3,
    only: str | None = None,
    out: str | Path = "validation",
    say: Say = lambda line: None,
) -> Validation:
    """The same on hosts of our own with slow links between them. What is found stands beside what the folder has.

    It needs root, ip, tc and Ray. The hosts are network namespaces; all that is made is gone at the end. Words are
    those of `validate`.
    """
    each = _checked(seconds, repeats)
    cases, place = chosen(only, LINK_CASES), Path(out)
    check_fitted(cases)
    before = conditions()
    measured, left_out = measure_on_hosts(cases, place, seconds=each, repeats=repeats, say=say)
    after = conditions()
    rows = compare(measured, each, say, training=False)
    fitted = [m.case.name for m in measured if m.case.half == "fit"]
    found = _stored(place)
    found.links = Validation(__version__, "ray", each, repeats, "", before, after, fitted, rows, left_out)
    found.links.found, found.links.processor = found_links(measured), on_the_processor(measured)
    found.save(place / FILE)
    return found


def _stored(place: Path) -> Validation:
    """What is in a folder; where nothing is, one in which nothing was run on this machine's own processes."""
    if (place / FILE).exists():
        return load(place / FILE)
    now = conditions()
    return Validation(__version__, "", 0.0, 1, "", now, now, [], [])


def _checked(seconds: str | float, repeats: object) -> float:
    """Seconds of a run."""
    each = parse_duration(seconds, "seconds")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or not 1 <= repeats <= MOST_REPEATS:
        raise ConfigError(f"repeats must be a whole number from 1 to {MOST_REPEATS:,}, got {repeats!r}")
    if each <= 0:
        raise ConfigError(f"seconds must be above 0, got {seconds!r}")
    return each
