"""How an address is asked: over HTTP alone, wherever it redirects to; a file only where it was named as one."""

import base64
import ssl
from http.client import HTTPMessage
from typing import IO
from urllib.error import URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import (
    FileHandler,
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)


class _OverHttp(HTTPRedirectHandler):
    """Follows redirects to other pages, never to files or other protocols."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise URLError(f"it redirects to {urlsplit(newurl).scheme[:20]}:, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def opener(url: str, cafile: str | None) -> OpenerDirector:
    """What asks for this address: by its scheme, and nothing else that urllib could do."""
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https", "file"):
        raise URLError(f"addresses must begin with http: or https:, got {scheme[:20]}:")
    made = OpenerDirector()
    if scheme == "file":
        made.add_handler(FileHandler())
        return made
    https = HTTPSHandler(context=ssl.create_default_context(cafile=cafile))
    for handler in (ProxyHandler(), HTTPHandler(), https, _OverHttp(), HTTPDefaultErrorHandler(), HTTPErrorProcessor()):
        made.add_handler(handler)
    return made


def request(url: str, headers: dict[str, str]) -> Request:
    """urllib ignores `user:password@` in an address, which private package indexes use."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    made = Request(urlunsplit(parts._replace(netloc=host)), headers={"User-Agent": "offbeat", **headers})
    if at:
        name, _, password = user.partition(":")
        token = base64.b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
        made.add_unredirected_header("Authorization", f"Basic {token}")  # never sent on to another host
    return made
