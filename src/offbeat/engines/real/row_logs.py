"""What workers announce through memory that they share with the server: rows and steps, in a log of each worker."""

from collections.abc import Sequence
from typing import Any

from msgspec import msgpack

from offbeat.engines.real.shared_log import SharedLog

_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder(tuple[list[tuple[Any, ...]], int]).decode


def write_rows(log: SharedLog, rows: list[tuple[Any, ...]], steps: int) -> None:
    """By a worker. Waits while the server is too far behind, which ends with the server."""
    log.append(_encode((rows, steps)))


def read_rows(logs: Sequence[SharedLog]) -> tuple[list[tuple[Any, ...]], int]:
    """By the server: rows and steps that are new, in the order of time."""
    found: list[tuple[Any, ...]] = []
    total = 0
    for log in logs:
        for message in log.read():
            rows, steps = _decode(message)
            found += rows
            total += steps
    found.sort(key=lambda row: row[:2])  # stable: what a worker says at one time stays in order
    return found, total
