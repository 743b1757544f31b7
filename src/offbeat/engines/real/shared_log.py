"""Messages through memory that two processes share: no system call, and nothing is lost with who wrote them."""

import time
from collections.abc import Iterator

import numpy as np

_COUNTS = 64  # bytes at the beginning: how many bytes were written, and how many read, since ever
_HEAD = 8  # bytes before each piece: its length, whether a message begins with it, whether more of it follows
_PATIENCE = 0.001  # seconds between two looks for room


class SharedLog:
    """A ring of bytes with one writer and one reader. What was written counts from the moment that its count changes.

    A writer waits while the reader is too far behind: whoever reads must not end before the writer does. Long messages
    go in pieces.
    """

    def __init__(self, memory: memoryview) -> None:
        self._counts = np.frombuffer(memory, np.int64, 2)
        self._ring = memory[_COUNTS:]
        self._piece = len(self._ring) // 2 - _HEAD
        self._begun = b""  # of a message that is still being read

    def append(self, message: bytes) -> None:
        at = 0
        while True:
            first, piece = not at, message[at : at + self._piece] if len(message) > self._piece else message
            at += len(piece)
            more = at < len(message)
            self._put((4 * len(piece) + 2 * first + more).to_bytes(_HEAD, "little") + piece)
            if not more:
                return

    def _put(self, data: bytes) -> None:
        counts, size = self._counts, len(self._ring)
        while int(counts[0]) - int(counts[1]) + len(data) > size:
            time.sleep(_PATIENCE)
        at = int(counts[0]) % size
        first = min(len(data), size - at)
        self._ring[at : at + first] = data[:first]
        if first < len(data):
            self._ring[: len(data) - first] = data[first:]
        counts[0] += len(data)

    def read(self) -> Iterator[bytes]:
        """The messages that are new."""
        written = int(self._counts[0])
        while (at := int(self._counts[1])) < written:
            head = int.from_bytes(self._get(at, _HEAD), "little")
            length, first, more = head >> 2, head & 2, head & 1
            self._begun = (b"" if first else self._begun) + self._get(at + _HEAD, length)
            self._counts[1] = at + _HEAD + length
            if not more:
                message, self._begun = self._begun, b""
                yield message

    def _get(self, at: int, length: int) -> bytes:
        at %= len(self._ring)
        found = bytes(self._ring[at : at + length])
        return found if len(found) == length else found + bytes(self._ring[: length - len(found)])

    def forget(self) -> None:
        """What is there is not read any more."""
        self._counts[1] = self._counts[0]
