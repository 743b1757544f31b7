"""Downloading one address: short waits, and a transfer that breaks goes on where it stopped."""

import base64
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from offbeat.core.errors import DataError
from offbeat.data.rawfiles import CHUNK_BYTES, reason
from offbeat.data.resumable import part_of

RANGE_NOT_SATISFIABLE = 416
Progress = Callable[[str, int, int | None], None]  # (what, bytes so far, bytes in all or None)


@dataclass(frozen=True)
class Patience:
    """How long to wait. `socket` bounds each wait of a socket; `open` bounds a whole request up to its first byte."""

    socket_seconds: float = 10.0
    open_seconds: float = 15.0
    num_attempts: int = 5


PATIENCE = Patience()


def open_url(url: str, *, headers: dict[str, str], patience: Patience = PATIENCE, cafile: str | None = None) -> Any:
    """An open response. A firewall that drops packets costs the full socket timeout per address of the host, and name
    lookup has no timeout at all; so the request runs in a thread that is abandoned when `open_seconds` are over."""
    context = ssl.create_default_context(cafile=cafile)
    answers: SimpleQueue[Any] = SimpleQueue()

    def ask() -> None:
        try:
            answers.put(urlopen(_request(url, headers), timeout=patience.socket_seconds, context=context))
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


def _request(url: str, headers: dict[str, str]) -> Request:
    """urllib ignores `user:password@` in an address, which private package indexes use."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    request = Request(urlunsplit(parts._replace(netloc=host)), headers={"User-Agent": "offbeat", **headers})
    if at:
        name, _, password = user.partition(":")
        token = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")  # never sent on to another host
    return request


def download(
    url: str,
    target: Path,
    *,
    kept: Path | None = None,
    progress: Progress | None = None,
    patience: Patience = PATIENCE,
    cafile: str | None = None,
) -> None:
    """Write the body of `url` to `target`; each attempt after a break asks only for the rest.

    With `kept`, a folder, so does the next call if this one fails or is killed, as long as the file has not changed.
    """
    with part_of(url, kept or target.parent, target.parent) as part:
        done, problem = part.size, ""
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
                    length = response.headers.get("Content-Length")
                    total = None if length is None else done + int(length)
                    while chunk := response.read(CHUNK_BYTES):
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
                problem = reason(error)
            if done == before:
                break  # not a broken transfer but no transfer: asking again would only cost time
    raise DataError(problem)


def _continues(response: Any, offset: int) -> bool:
    return bool(response.status == 206) and str(response.headers.get("Content-Range")).startswith(f"bytes {offset}-")
