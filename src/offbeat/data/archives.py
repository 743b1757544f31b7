"""Taking files out of archives that nobody vouches for: by base name, and no more bytes than were announced."""

import bz2
import gzip
import io
import lzma
import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

from offbeat.core.errors import DataError
from offbeat.data.rawfiles import BROKEN, CHUNK_BYTES, reason

_MEMBERS = 1000
_SLACK = 16 << 20
_COMPRESSED = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}


def unpack(archive: Path, wanted: Mapping[str, int], into: Path) -> None:
    """Takes the members with these base names, of at most so many bytes each; each gets a folder of its own.

    Folders, links and devices are passed over, and a member's own path is never used. Names can repeat; all that is
    taken together is bounded too.
    """
    left = 2 * sum(wanted.values())
    try:
        for number, (name, stream) in enumerate(_members(archive, wanted)):
            if number == _MEMBERS:
                raise DataError(f"{archive.name} holds {name} more than {_MEMBERS:,} times")
            target = into / token_hex(4) / name
            target.parent.mkdir()
            most = min(wanted[name], left)
            with stream, target.open("xb") as out:
                shutil.copyfileobj(Bounded(stream, most, f"{name} in {archive.name}"), out, CHUNK_BYTES)
                left -= out.tell()
    except BROKEN as error:
        raise DataError(f"{archive.name} cannot be unpacked: {reason(error)}") from error


class Bounded(io.RawIOBase):
    """A stream that ends with an error when more has come than was announced."""

    def __init__(self, stream: Any, most: int, what: str) -> None:
        self._stream, self._left, self._most, self._what = stream, most, most, what

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._stream.read(min(size if size >= 0 else CHUNK_BYTES, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise DataError(f"{self._what} is too long: more than {self._most:,} bytes")
        return data


def _members(archive: Path, wanted: Mapping[str, int]) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(archive) as zipped:
            for entry in zipped.infolist():
                base = entry.filename.rpartition("/")[2]
                if base in wanted:
                    yield base, zipped.open(entry)
        return
    # Read as a stream and counted, because a header alone can ask for gigabytes.
    most = 4 * (archive.stat().st_size + sum(wanted.values())) + _SLACK
    with _decompressed(archive) as stream:
        bounded: Any = Bounded(stream, most, archive.name)
        with tarfile.open(fileobj=bounded, mode="r|") as tarred:
            for member in tarred:
                base = member.name.rpartition("/")[2]
                inside = tarred.extractfile(member) if base in wanted and member.isfile() else None
                if inside is not None:
                    yield base, inside


def _decompressed(archive: Path) -> IO[bytes]:
    with archive.open("rb") as file:
        opened: Any = _COMPRESSED.get(file.read(2), open)
    stream: IO[bytes] = opened(archive, "rb")
    return stream
