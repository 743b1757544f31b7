"""How raw files become tensors: parsed, checked, scaled to [0, 1], resized if asked, standardised."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from offbeat.core.errors import ConfigError, DataError, unknown
from offbeat.data.datasets import DATASETS, Dataset, RawFile, cache_dir, dataset
from offbeat.data.rawfiles import difference, flaw, reason

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

IDX_IMAGES, IDX_LABELS = 0x0803, 0x0801  # unsigned bytes in 3 and in 1 dimensions
CIFAR_RECORD = 1 + 3 * 32 * 32
DIGITS_SIDE, DIGITS_TEST = 32, 360
Scaling = Literal["standard", "unit", "caffe"]
SCALINGS = ("standard", "unit", "caffe")


@dataclass(frozen=True, eq=False)
class Arrays:
    """A dataset in memory: `x` is float32 in NCHW order, `y` is int64 in [0, classes)."""

    name: str
    classes: int
    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor


@dataclass(frozen=True)
class _Split:
    """Pixels as stored (N, C, H, W) and labels."""

    x: Bytes
    y: Bytes


def load(
    name: str,
    *,
    cache: Path | None = None,
    resize: int | None = None,
    scaling: Scaling = "standard",
    table: Mapping[str, Dataset] = DATASETS,
) -> Arrays:
    """The dataset as tensors; every file's checksum is verified on the way.

    `resize` is the side of the pictures after bilinear interpolation; by default their own (32 for digits). Scaling is
    `standard`: (x - mean) / std with the table's constants, those of the train split at its own size; `unit`: from 0
    to 1; `caffe`: from 0 to 255, less the mean picture of the train split.
    """
    import torch

    row = dataset(name, table)
    if row.kind == "text":
        raise ConfigError(f"{name} is text, not pictures; offbeat.data.arrays.text_file gives its path")
    if scaling not in SCALINGS:
        raise unknown("scaling", str(scaling), SCALINGS)
    if resize is not None and resize < 1:
        raise ConfigError(f"resize must be at least 1, got {resize}")
    folder = (cache_dir() if cache is None else cache) / name
    if row.kind == "digits":
        train, test = _digits()
        top, side = 16, resize or DIGITS_SIDE
    else:
        contents = [_verified(name, folder / file.name, file) for file in row.files]
        train, test = (_idx if row.kind == "idx" else _cifar)(contents, row.classes)
        top, side = 255, resize or train.x.shape[-1]
    train_x, test_x = (_pictures(split.x, top, side) for split in (train, test))
    _scale(train_x, test_x, scaling, row)
    train_y, test_y = (torch.from_numpy(split.y).to(torch.int64) for split in (train, test))
    return Arrays(name, row.classes, train_x, train_y, test_x, test_y)


def text_file(name: str, *, cache: Path | None = None, table: Mapping[str, Dataset] = DATASETS) -> Path:
    """The path of a text dataset's one file, verified."""
    row = dataset(name, table)
    if row.kind != "text":
        raise ConfigError(f"{name} is pictures, not text; offbeat.data.arrays.load gives its tensors")
    path = (cache_dir() if cache is None else cache) / name / row.files[0].name
    if problem := flaw(path, row.files[0]):
        raise _unusable(name, path, problem)
    return path


def _verified(name: str, path: Path, file: RawFile) -> Bytes:
    """The file's bytes, read once and hashed in memory."""
    import numpy as np

    try:
        content = np.fromfile(path, dtype=np.uint8)
    except FileNotFoundError:
        raise _unusable(name, path, "missing") from None
    except OSError as error:
        raise _unusable(name, path, f"{path} cannot be read: {reason(error)}") from error
    if problem := difference(path, file, content.size, hashlib.sha256(content.data).hexdigest()):
        raise _unusable(name, path, problem)
    return content


def _unusable(name: str, path: Path, problem: str) -> DataError:
    if not path.exists():
        problem = f"{name} is not in {path.parent.parent}"
    return DataError(f"{problem}; run: offbeat data get {name}")


def _pictures(x: Bytes, top: int, side: int) -> torch.Tensor:
    """Bytes in [0, top] to float32 in [0, 1], in place after the first copy: CIFAR-10 is 600 MB as floats."""
    import torch
    from torch.nn.functional import interpolate

    values = torch.from_numpy(x).to(torch.float32).div_(top)
    if values.shape[-1] != side:
        values = interpolate(values, size=(side, side), mode="bilinear", align_corners=False)
    return values


def _scale(train_x: torch.Tensor, test_x: torch.Tensor, scaling: Scaling, row: Dataset) -> None:
    """In place; what is learnt of the data is learnt of its train split."""
    import torch

    if scaling == "standard":
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (row.mean, row.std))
        for x in (train_x, test_x):
            x.sub_(mean).div_(std)
    elif scaling == "caffe":
        picture = train_x.mean(0)
        for x in (train_x, test_x):
            x.sub_(picture).mul_(255)


def parse_idx(content: Bytes, magic: int) -> Bytes:
    """The array in an IDX file: magic, one big-endian uint32 per dimension, then exactly that many bytes."""
    num_dims = magic & 0xFF
    header = content[: 4 + 4 * num_dims].tobytes()
    if len(header) < 4 + 4 * num_dims:
        raise DataError(f"IDX file of {content.size} bytes is shorter than its header")
    if (found := int.from_bytes(header[:4], "big")) != magic:
        raise DataError(f"IDX magic is {found:#010x}, expected {magic:#010x}")
    shape = [int.from_bytes(header[4 + 4 * d : 8 + 4 * d], "big") for d in range(num_dims)]
    if 0 in shape:
        raise DataError(f"IDX dimensions {shape} hold nothing")
    size = 1
    for length in shape:
        size *= length
    payload = content[len(header) :]
    if payload.size != size:
        raise DataError(f"IDX dimensions {shape} need {size:,} bytes, the file has {payload.size:,}")
    return payload.reshape(shape)


def _idx(contents: list[Bytes], classes: int) -> tuple[_Split, _Split]:
    train, test = (
        _checked(parse_idx(images, IDX_IMAGES)[:, None], parse_idx(labels, IDX_LABELS), classes)
        for images, labels in (contents[:2], contents[2:])
    )
    return train, test


def parse_cifar(content: Bytes, classes: int) -> tuple[Bytes, Bytes]:
    """Pictures (N, 3, 32, 32) and labels of a CIFAR-10 binary file: records of 1 label byte and 3,072 of planar RGB."""
    if content.size == 0 or content.size % CIFAR_RECORD:
        raise DataError(f"CIFAR file of {content.size:,} bytes is not a number of {CIFAR_RECORD}-byte records")
    records = content.reshape(-1, CIFAR_RECORD)
    split = _checked(records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].copy(), classes)
    return split.x, split.y


def _cifar(contents: list[Bytes], classes: int) -> tuple[_Split, _Split]:
    """The last file is the test split."""
    import numpy as np

    *train, test = (parse_cifar(content, classes) for content in contents)
    return _Split(np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train])), _Split(*test)


def _checked(x: Bytes, y: Bytes, classes: int) -> _Split:
    if len(x) != len(y):
        raise DataError(f"{len(x):,} pictures but {len(y):,} labels")
    if (largest := int(y.max())) >= classes:
        raise DataError(f"label {largest} is out of range, there are {classes} classes")
    return _Split(x, y)


def _digits() -> tuple[_Split, _Split]:
    """scikit-learn's scans, split by class. RandomState, because numpy promises that its stream never changes."""
    import gzip
    from importlib.util import find_spec

    import numpy as np

    package = find_spec("sklearn")  # where it is: importing it takes seconds, and all we want is one of its files
    assert package is not None
    assert package.origin is not None
    with gzip.open(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    x, y = table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1]
    order = np.random.RandomState(0).permutation(len(y))
    counts = np.bincount(y)
    exact = counts * DIGITS_TEST / len(y)
    quota = np.floor(exact).astype(int)
    quota[np.argsort(quota - exact, kind="stable")[: DIGITS_TEST - quota.sum()]] += 1  # largest remainders
    test = np.sort(np.concatenate([order[y[order] == label][: quota[label]] for label in range(len(counts))]))
    train = np.setdiff1d(np.arange(len(y)), test)
    return _Split(x[train], y[train]), _Split(x[test], y[test])
