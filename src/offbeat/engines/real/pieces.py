"""Long messages over sockets that keep the ends of messages: they go in pieces, the last one marked."""

PIECE = 60_000
LONGEST = PIECE + 1
"""Bytes of a piece with its mark."""
_MORE, _LAST = b"+", b"."


def pieces(data: bytes) -> list[bytes]:
    if len(data) <= PIECE:  # nearly all of them
        return [_LAST + data]
    starts = range(0, len(data), PIECE)
    return [(_MORE if at + PIECE < len(data) else _LAST) + data[at : at + PIECE] for at in starts]


class Assembly:
    """Puts pieces together again."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    @property
    def size(self) -> int:
        """Bytes of a message that has begun to come."""
        return PIECE * len(self._begun)

    def take(self, piece: bytes) -> bytes | memoryview | None:
        """The message whose last piece this is."""
        if not self._begun and piece[:1] == _LAST:
            return memoryview(piece)[1:]
        self._begun.append(piece[1:])
        if piece[:1] != _LAST:
            return None
        whole = b"".join(self._begun)
        self._begun = []
        return whole
