"""run.json: what a run says of itself, as a typed value."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from offbeat.core.errors import StoreError
from offbeat.core.format import FORMAT
from offbeat.folders.limits import MOST_NAME, MOST_NUMBER, MOST_SECONDS, MOST_WORKERS
from offbeat.folders.plain_values import read_json

Name = Annotated[str, Meta(max_length=MOST_NAME)]
Number = Annotated[float, Meta(ge=-MOST_NUMBER, le=MOST_NUMBER)]
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
Count = Annotated[int, Meta(ge=0)]
Workers = Annotated[int, Meta(ge=1, le=MOST_WORKERS)]
Share = Annotated[float, Meta(ge=-0.001, le=1.001)]
"""Sums of many small times are off by a rounding."""
Status = Literal["running", "interrupted", "failed", "done", "diverged"]

UNFINISHED = ("running", "interrupted", "failed")
ENDED = ("done", "diverged")


class Spent(Struct):
    """Where the seconds of one worker went."""

    present: Number = 0.0
    computing: Number = 0.0
    delayed: Number = 0.0
    communicating: Number = 0.0
    waiting: Number = 0.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:  # a difference of sums may be a rounding below 0
            setattr(self, name, max(0.0, getattr(self, name)))


class SpentThere(Spent):
    """Where the seconds of the workers of one machine went."""

    machine: Name = ""
    workers: Count = 0

    def __post_init__(self) -> None:
        for name in Spent.__struct_fields__:
            setattr(self, name, max(0.0, getattr(self, name)))


class Summary(Struct, kw_only=True):
    """What a run came to; what it has no number for is None."""

    status: Status
    why: str = ""
    task: Name
    solver: Name
    workers: Workers
    seed: int = 0
    batch: Count | None = None
    global_batch: Count | None = None
    updates: Count
    samples: Count
    samples_applied: Count | None = None
    epochs: Number | None = None
    loss: Number | None = None
    accuracy: Number | None = None
    train_loss: Number | None = None
    best: Number | None = None
    stalled: bool = False
    target: Name | None = None
    time_to_target: Seconds | None = None
    mean_staleness: Number | None = None
    max_staleness: Count | None = None
    engine: Name | None = None
    virtual_seconds: Seconds | None = None
    wall_seconds: Seconds | None = None
    samples_per_second: Number | None = None
    computing_share: Share | None = None
    delayed_share: Share | None = None
    communicating_share: Share | None = None
    idle_share: Share | None = None
    per_worker: list[Spent] = []
    per_machine: list[SpentThere] = []
    server_busy_share: Number | None = None
    server_queued_seconds: Number | None = None
    bytes: Count | None = None
    lost_share: Number | None = None
    incidents: list[str] = []
    lost_updates: Count | None = None
    params_sha256: Name | None = None


class _Named(Struct, frozen=True):
    name: Name | None = None


class _Optimizer(_Named, frozen=True):
    lr: Number | Name | None = None


class _Cluster(Struct, frozen=True):
    workers: Workers | None = None


class _Budget(Struct, frozen=True):
    until: Name | None = None


class _Sections(Struct):
    """What others ask of a configuration without building it; `lab.config` checks the rest when a run is made of it."""

    task: _Named = _Named()
    solver: _Named = _Named()
    optimizer: _Optimizer = _Optimizer()
    cluster: _Cluster = _Cluster()
    budget: _Budget = _Budget()
    data: dict[str, Any] = {}
    schedule: dict[str, Any] = {}
    seed: int = 0
    origin: Name | None = msgspec.field(name="from", default=None)


class _About(Struct):
    """What a task says of itself, as far as others ask."""

    parameters: Count | None = None
    chance: Share | None = None


class Description(Struct, kw_only=True):
    """A run, as its folder tells it."""

    format: int
    config: dict[str, Any]
    status: Status
    why: str = ""
    key: Name | None = None
    seed: int = 0
    versions: dict[Name, Name] = {}
    clock: Literal["virtual", "wall"] = "virtual"
    engine: Name = "sim"
    task: dict[str, Any] = {}
    created: Name | None = None
    ended: Name | None = None
    summary: Summary | None = None
    signature: Name | None = None
    """That this user made it here (`lab/runs/trust.py`)."""

    def __post_init__(self) -> None:
        msgspec.convert(self.config, _Sections)
        msgspec.convert(self.task, _About)
        if self.status in ENDED and self.summary is None:
            raise ValueError("it has ended and has no summary")

    @property
    def outcome(self) -> dict[str, Any]:
        """The summary as plain values; empty where there is none."""
        found: dict[str, Any] = {} if self.summary is None else msgspec.to_builtins(self.summary)
        return found


class _Format(Struct):
    format: int


def read_description(folder: Path) -> Description:
    """run.json of a folder. A StoreError in one line says what is wrong with it."""
    try:
        found = read_json(folder, "run.json", dict[str, Any])
    except FileNotFoundError:
        raise StoreError(f"{folder} is not a run folder: it has no run.json") from None
    try:
        written_in = msgspec.convert(found, _Format).format
    except msgspec.ValidationError:
        raise StoreError(f"{folder / 'run.json'} cannot be read: it does not say its format") from None
    if written_in > FORMAT:
        raise StoreError(
            f"{folder} was written by a newer offbeat (format {written_in}, this one reads up to {FORMAT})"
        )
    try:
        return msgspec.convert(found, Description)
    except (msgspec.ValidationError, ValueError) as e:
        raise StoreError(f"{folder / 'run.json'} cannot be read: {e}") from None
