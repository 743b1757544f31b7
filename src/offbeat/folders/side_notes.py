"""The smaller JSON files of a folder: tags, who had which labels, scores by class."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from offbeat.folders.description import Count, Name, Number
from offbeat.folders.limits import MOST_TAGS
from offbeat.folders.plain_values import read_json

Tag = Annotated[str, Meta(min_length=1, max_length=100)]
Tags = Annotated[list[Tag], Meta(max_length=MOST_TAGS)]
_Label = int | Name


class PartitionNote(Struct, omit_defaults=True):
    """partition.json: how many samples each worker has and, where there are labels, of which."""

    partition: Name = ""
    sampling: Name = ""
    workers: Count = 0
    samples: Count = 0
    sizes: list[Count] = []
    size_skew: Number = 0.0
    labels: list[_Label] = []
    histograms: list[list[Count]] = []
    label_skew: list[Number] = []
    mean_label_skew: Number | None = None
    names: list[Name] | None = None

    def __post_init__(self) -> None:
        columns = {len(row) for row in self.histograms} | ({len(self.labels)} if self.histograms else set())
        if len(columns) > 1 or (self.names and len(self.names) != len(self.labels)):
            raise ValueError("its histograms have not as many columns as there are labels")


class Scores(Struct, omit_defaults=True):
    """The scores of one held-out set, by class where there are classes."""

    loss: Number | None = None
    accuracy: Number | None = None
    classes: list[_Label] = []
    samples: Count = 0
    precision: list[Number] = []
    recall: list[Number] = []
    f1: list[Number] = []
    support: list[Count] = []
    mean_precision: Number | None = None
    mean_recall: Number | None = None
    mean_f1: Number | None = None
    confusion: list[list[Count]] = []

    def __post_init__(self) -> None:
        if self.confusion:
            columns: tuple[list[Any], ...] = (
                self.classes,
                self.precision,
                self.recall,
                self.f1,
                self.support,
                *self.confusion,
            )
            means = (self.mean_precision, self.mean_recall, self.mean_f1)
            if {len(c) for c in columns} != {len(self.confusion)} or None in means:
                raise ValueError("its scores are not of as many classes as its confusion matrix")


Evaluation = dict[Name, Scores]


def read_tags(folder: Path) -> list[str]:
    """None where nobody gave any."""
    try:
        return read_json(folder, "tags.json", Tags)
    except FileNotFoundError:
        return []


def read_partition(folder: Path) -> dict[str, Any]:
    """Empty where the task has no dataset."""
    return _plain(folder, "partition.json", PartitionNote)


def read_evaluation(folder: Path) -> dict[str, Any]:
    """By held-out set; empty where the task has no classes."""
    return _plain(folder, "evaluation.json", Evaluation)


class LandscapeNote(Struct, kw_only=True):
    """landscape.json: how the grid and the paths beside it were made."""

    key: Name = ""
    directions: Name
    grid: Annotated[int, Meta(ge=3, le=500)]
    explained: Annotated[list[Number], Meta(min_length=1, max_length=2)]
    solvers: list[Name]
    seeds: list[int]
    task: Name
    parameters: Count
    names: list[Name] = []
    """What the trajectories are called; by solver and seed where it is empty."""

    def __post_init__(self) -> None:
        if len(self.solvers) != len(self.seeds):
            raise ValueError("it has not as many seeds as solvers")
        if self.names and len(self.names) != len(self.solvers):
            raise ValueError("it has not as many names as solvers")


def _plain(folder: Path, name: str, kind: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.to_builtins(read_json(folder, name, kind))
        return found
    except FileNotFoundError:
        return {}
