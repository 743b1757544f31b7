"""Downloading one address: short waits, no more bytes than announced, and a transfer that breaks goes on."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.error import HTTPError

from offbeat.core.errors import DataError
from offbeat.data.rawfiles import CHUNK_BYTES, reason
from offbeat.data.requests import opener, request
from offbeat.data.resumable import Part, part_of

RANGE_NOT_SATISFIABLE = 416
Progress = Callable[[str, int, int | None], None]  # (what, bytes so far, bytes in all or None)


@dataclass(frozen=True)
class Patience:
    """How long to wait.

    `socket` bounds each wait of a socket, `open` a whole request up to its first byte. A body may take `grace` seconds,
    and as long again as its bytes would at the slowest rate: so the whole of it is bounded, however slowly it drips.
    """

    socket_seconds: float = 10.0
    open_seconds: float = 15.0
    num_attempts: int = 5
    grace_seconds: float = 30.0
    slowest_rate: float = 5_000.0


PATIENCE = Patience()


def open_url(url: str, *, headers: dict[str, str], patience: Patience = PATIENCE, cafile: str | None = None) -> Any:
    """An open response. A firewall that drops packets costs the full socket timeout per address of the host, and name
    lookup has no timeout at all; so the request runs in a thread that is abandoned when `open_seconds` are over."""
    answers: SimpleQueue[Any] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(opener(url, cafile).open(request(url, headers), timeout=patience.socket_seconds))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, name="offbeat-open-url", daemon=True).start()
    try:
        answer = answers.get(timeout=patience.open_seconds)
    except Empty:
        raise TimeoutError(f"no answer in {patience.open_seconds:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def chunks(response: Any, patience: Patience = PATIENCE) -> Iterator[bytes]:
    """The body as it comes; one that comes too slowly is given up."""
    began, done = time.monotonic(), 0
    while chunk := response.read1(CHUNK_BYTES):
        done += len(chunk)
        yield chunk
        if time.monotonic() - began > patience.grace_seconds + done / patience.slowest_rate:
            raise TimeoutError(f"slower than {patience.slowest_rate / 1000:g} kB/s: {done:,} bytes came")


def download(
    url: str,
    target: Path,
    *,
    most: int,
    kept: Path | None = None,
    progress: Progress | None = None,
    patience: Patience = PATIENCE,
    cafile: str | None = None,
) -> None:
    """Write the body of `url`, of at most so many bytes, to `target`; each attempt after a break asks for the rest.

    With `kept`, a folder, so does the next call if this one fails or is killed, as long as the file has not changed.
    """
    with part_of(url, kept or target.parent, target.parent) as part:
        done, problem = part.size if part.size <= most else 0, ""
        for _ in range(patience.num_attempts):
            before = done
            headers = {"Range": f"bytes={done}-"} if done else {}
            if done and part.version:
                headers["If-Range"] = part.version  # a file that changed meanwhile is sent anew
            try:
                with open_url(url, headers=headers, patience=patience, cafile=cafile) as response:
                    if not (headers and _continues(response, done)):
                        done = before = 0
                    part.begin(done, response.headers.get("ETag") or response.headers.get("Last-Modified"))
                    total = _announced(response, done)
                    for chunk in chunks(response, patience):
                        _check_size(max(done + len(chunk), total or 0), most, part)
                        done += part.write(chunk)
                        if progress:
                            progress(target.name, done, total)
                if total is None or done >= total:
                    part.move_to(target)
                    return
                problem = f"the connection closed after {done:,} of {total:,} bytes"
            except HTTPError as error:
                if error.code != RANGE_NOT_SATISFIABLE or not done:
                    raise DataError(f"HTTP {error.code}") from error
                done, before = 0, -1  # there is no more of it than we have: once more from the start
            except (OSError, HTTPException, ValueError) as error:
                if part.failed:
                    raise  # the disk, not the network
                problem = reason(error)
            if done == before:
                break  # not a broken transfer but no transfer: asking again would only cost time
    raise DataError(problem)


def _check_size(size: int, most: int, part: Part) -> None:
    if size > most:
        part.forget()
        raise DataError(f"it is too long: more than {most:,} bytes")


def _announced(response: Any, done: int) -> int | None:
    """The length of the whole, if the server says it."""
    length = response.headers.get("Content-Length")
    if length is None:
        return None
    if not length.strip().isdecimal() or len(length) > 18:
        raise ValueError("its length is not a number")
    return done + int(length)


def _continues(response: Any, offset: int) -> bool:
    return bool(response.status == 206) and str(response.headers.get("Content-Range")).startswith(f"bytes {offset}-")
