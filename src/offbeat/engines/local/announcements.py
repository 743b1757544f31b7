"""Rows of the trace through shared memory: no message, no lock, nothing lost with the process that made them.

Two kinds of logs: of each worker, which announces what it did, read by the server; and of the server, which writes down
what it did before it answers anybody, read by the control.
"""

from collections.abc import Iterator
from typing import Any

from msgspec import msgpack

from offbeat.engines.local.arena import Arena
from offbeat.engines.real.messages import Transaction
from offbeat.engines.real.row_logs import read_rows, write_rows

_encode = msgpack.Encoder().encode
_transaction = msgpack.Decoder(Transaction).decode


def announce(arena: Arena, i: int, rows: list[tuple[Any, ...]], steps: int) -> None:
    """By worker i."""
    write_rows(arena.logs[i], rows, steps)


def announced(arena: Arena) -> tuple[list[tuple[Any, ...]], int]:
    """By the server: rows and steps that are new, in the order of time."""
    return read_rows(arena.logs)


def forget(arena: Arena) -> None:
    """Before a new server: what nobody has read of the old one's time is not read any more."""
    for log in (*arena.logs, arena.record):
        log.forget()
    arena.unread[:] = 0


def keep(arena: Arena, transaction: Transaction) -> None:
    """By the server: all of it, or nothing. Waits while the control is too far behind, which ends with the control."""
    arena.record.append(_encode(transaction))


def committed(arena: Arena) -> Iterator[Transaction]:
    """By the control: transactions that are new."""
    for message in arena.record.read():
        transaction = _transaction(message)
        transaction.rows = [tuple(row) for row in transaction.rows]
        yield transaction
