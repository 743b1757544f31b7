"""Curves for TensorBoard, written without it: an event file is length-prefixed protobuf with checksums.

record = length (uint64), masked crc32c of it, data, masked crc32c of the data; data is an Event:
    wall_time = 1 (double), step = 2 (int64), file_version = 3 (string),
    summary = 5 { value = 1 { tag = 1 (string), simple_value = 2 (float) } }
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from offbeat.core.errors import StoreError
from offbeat.folders.run_files import RunFiles

_POLYNOMIAL = 0x82F63B78  # Castagnoli, reversed
_LARGEST = 3.4028234663852886e38
"""Of 32-bit floats."""
_NOT_CURVES = ("time", "samples", "updates", "epoch")


def _table() -> list[int]:
    out = []
    for n in range(256):
        for _ in range(8):
            n = (n >> 1) ^ _POLYNOMIAL if n & 1 else n >> 1
        out.append(n)
    return out


_TABLE = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def event(wall_time: float, step: int, tag: str, value: float) -> bytes:
    value = min(max(value, -_LARGEST), _LARGEST)  # of a run that diverged
    scalar = _bytes(1, tag.encode()) + _varint(2 << 3 | 5) + struct.pack("<f", value)
    head = _varint(1 << 3 | 1) + struct.pack("<d", wall_time) + _varint(2 << 3) + _varint(step)
    return head + _bytes(5, _bytes(1, scalar))


def events(run: RunFiles) -> Iterator[bytes]:
    """Every metric against samples (the step), at the run's own time."""
    yield _varint(1 << 3 | 1) + struct.pack("<d", 0.0) + _bytes(3, b"brain.Event:2")
    table = run.metrics()
    steps, times = run.metric("samples"), run.metric("time")
    for name in table.column_names:
        if name in _NOT_CURVES:
            continue
        values = run.metric(name)
        for i in np.flatnonzero(np.isfinite(values)):
            yield event(float(times[i]), int(steps[i]), name, float(values[i]))


def write(runs: list[RunFiles], folder: Path) -> Path:
    """One folder a run below `folder`, as `tensorboard --logdir` wants it."""
    names: dict[str, int] = {}
    for run in runs:
        names[run.name] = names.get(run.name, 0) + 1
        own = run.name if names[run.name] == 1 else f"{run.name}-{names[run.name]}"
        try:
            (folder / own).mkdir(parents=True, exist_ok=True)
            data = b"".join(record(e) for e in events(run))
            (folder / own / "events.out.tfevents.0.offbeat").write_bytes(data)
        except OSError as e:
            raise StoreError(f"cannot write to {folder / own}: {e.strerror}") from None
    return folder
