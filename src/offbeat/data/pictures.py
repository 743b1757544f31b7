"""Folders of pictures, one a class: listed, decoded once, and then mapped into memory."""

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.core.errors import DataError
from offbeat.core.feed import Indices
from offbeat.core.units import format_size
from offbeat.data.rawfiles import TEMPORARY, reason, sweep

_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".gif", ".tif", ".tiff")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's train split, from 0 to 1
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Listing:
    """One split: the files in order, and the class of each."""

    root: Path
    files: tuple[Path, ...]
    labels: Indices


def listing(root: Path, classes: Sequence[str] | None = None) -> tuple[Listing, list[str]]:
    """The pictures below `root`, one folder a class; classes are numbered in the order of their names."""
    try:
        found = sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError as e:
        raise DataError(f"cannot read {root}: {reason(e)}") from None
    names = list(found if classes is None else classes)
    if strange := [name for name in found if name not in names]:
        raise DataError(f"{root} has a class {strange[0]!r} that the training set does not have")
    files, labels = [], []
    for name in found:
        mine = sorted(p for p in (root / name).iterdir() if p.suffix.lower() in _SUFFIXES)
        if not mine:
            raise DataError(f"{root / name} has no pictures ({', '.join(_SUFFIXES)})")
        files += mine
        labels += [names.index(name)] * len(mine)
    if not files:
        raise DataError(f"{root} has no folders with pictures: expected {root}/<class>/*.jpg")
    return Listing(root, tuple(files), np.asarray(labels, dtype=np.int64)), names


def decode(path: Path, resize: int, crop: int) -> Pixels:
    """RGB bytes (3, crop, crop): the shorter side resized (bilinear) to `resize`, then the centre cropped."""
    try:
        from PIL import Image
    except ImportError:
        raise DataError("reading pictures needs pillow (pip install 'offbeat[data]')") from None
    try:
        with Image.open(path) as picture:
            rgb = picture.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as e:
        raise DataError(f"{path} cannot be read as a picture: {reason(e)}") from None
    width, height = rgb.size
    scale = resize / min(width, height)
    width, height = max(resize, round(width * scale)), max(resize, round(height * scale))
    left, top = (width - crop) // 2, (height - crop) // 2
    rgb = rgb.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + crop, top + crop))
    return np.ascontiguousarray(np.asarray(rgb, dtype=np.uint8).transpose(2, 0, 1))


def decoded(found: Listing, resize: int, crop: int, cache: Path) -> Pixels:
    """All pictures of a listing as one array on disk, mapped into memory; made once, whole or not at all."""
    shape = (len(found.files), 3, crop, crop)
    target = cache / f"{digest(found, resize, crop)}.u8"
    if not target.exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            sweep(cache)
            need, free = int(np.prod(shape, dtype=np.int64)), shutil.disk_usage(cache).free
            if need > free:
                raise DataError(
                    f"the decoded pictures of {found.root} need {format_size(need)} and {cache} has "
                    f"{format_size(free)}: set OFFBEAT_DATA to another place, or task.decoded=false"
                )
            part = cache / f"{TEMPORARY}{token_hex(8)}"
            try:
                with part.open("xb") as out:
                    for path in found.files:
                        out.write(decode(path, resize, crop).tobytes())
                    out.flush()
                    os.fsync(out.fileno())
                os.replace(part, target)
            finally:
                part.unlink(missing_ok=True)
        except OSError as e:
            raise DataError(f"cannot write {cache}: {reason(e)}; set OFFBEAT_DATA to another place") from None
    # Copy on write: torch wants an array that may be written to, and nobody writes.
    return np.memmap(target, dtype=np.uint8, mode="c", shape=shape)


def digest(found: Listing, resize: int, crop: int) -> str:
    """Of names, sizes and times of change: a folder that changed is decoded anew."""
    digest = hashlib.sha256(f"{resize}/{crop}".encode())
    for path in found.files:
        state = path.stat()
        digest.update(f"{path.relative_to(found.root)}/{state.st_size}/{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:24]


class PictureSamples:
    """Pictures as bytes, standardised batch by batch: four times smaller than floats."""

    def __init__(self, pixels: Callable[[Indices], Pixels], labels: Indices) -> None:
        self._pixels, self.labels = pixels, labels
        self._mean, self._std = (255 * torch.tensor(v).view(3, 1, 1) for v in (MEAN, STD))

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor]:
        values = torch.from_numpy(self._pixels(indices)).to(torch.float32)
        return values.sub_(self._mean).div_(self._std), torch.from_numpy(self.labels[indices])


def reader(found: Listing, resize: int, size: int, cache: Path | None) -> Callable[[Indices], Pixels]:
    """The pixels of some pictures: from the cache, or decoded each time."""
    if cache is None:
        return lambda at: np.stack([decode(found.files[i], resize, size) for i in at])
    pixels = decoded(found, resize, size, cache)
    return lambda at: np.asarray(pixels[at])
