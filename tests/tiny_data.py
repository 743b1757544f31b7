"""Small datasets in the real formats, with their own checksums: what the data tests use instead of downloads."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offbeat.data.datasets import Dataset, RawFile, Source

IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx(array: NDArray[np.uint8]) -> bytes:
    """IDX as its authors describe it: 0, 0, 8 (unsigned byte), rank, big-endian lengths, values."""
    lengths = b"".join(n.to_bytes(4, "big") for n in array.shape)
    return bytes([0, 0, 8, array.ndim]) + lengths + array.tobytes()


def idx_contents(*, side: int = 28, num_train: int = 6, num_test: int = 4, seed: int = 0) -> dict[str, bytes]:
    rng = np.random.default_rng(seed)
    arrays = [
        rng.integers(0, 256, (num_train, side, side), dtype=np.uint8),
        rng.integers(0, 10, num_train, dtype=np.uint8),
        rng.integers(0, 256, (num_test, side, side), dtype=np.uint8),
        rng.integers(0, 10, num_test, dtype=np.uint8),
    ]
    return {name: idx(array) for name, array in zip(IDX_NAMES, arrays, strict=True)}


def row(contents: dict[str, bytes], kind: str = "idx", sources: tuple[Source, ...] = (), channels: int = 1) -> Dataset:
    files = tuple(RawFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items())
    mean, std = (0.4, 0.5, 0.6)[:channels], (0.2, 0.3, 0.25)[:channels]
    return Dataset("tiny", "none", kind, files, sources, classes=10, mean=mean, std=std)  # type: ignore[arg-type]


def write(folder: Path, contents: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return folder


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
