"""Servers, archives and caches that mean harm: one line, nothing outside, and no more bytes than were announced."""

import gzip
import io
import os
import random
import resource
import tarfile
import threading
import time
import zipfile
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from hostile_server import body, endless, hostile_server, raw, redirect
from offbeat.core.errors import DataError
from offbeat.data.archives import unpack
from offbeat.data.datasets import Web
from offbeat.data.download import Patience, download
from offbeat.data.fetch import fetch
from offbeat.data.rawfiles import most_packed
from tiny_data import files_under, row

TEXT = b"anarchism originated as a term of abuse " * 500
MOST = most_packed(len(TEXT))
BOMB = 80 << 20
QUICK = Patience(socket_seconds=0.2, open_seconds=2.0, num_attempts=2, grace_seconds=0.2, slowest_rate=1e9)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@contextmanager
def no_file_beyond(size: int):
    """The kernel refuses to make any file of this process larger: who tries gets "File too large"."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def get(cache: Path, url: str) -> Path:
    return fetch("tiny", cache=cache, table={"tiny": row({"text8": TEXT}, "text", (Web(url),))})


def refused(cache: Path, url: str) -> str:
    """The one line; nothing is left."""
    with no_file_beyond(MOST), pytest.raises(DataError) as caught:
        get(cache, url)
    assert "\n" not in str(caught.value)
    assert files_under(cache) == []
    return str(caught.value)


def tar(*members: tarfile.TarInfo, data: bytes = b"", mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info


# -- servers ----------------------------------------------------------------------------------------------------------

LIES = {
    "an endless body": (endless(), "too long"),
    "an endless body that is said to be short": (endless(Content_Length="10"), "truncated"),
    "a length beyond the announced": (endless(Content_Length=str(10**12)), "too long"),
    "a length that is no number": (body(TEXT, Content_Length="-5"), "not a number"),
    "a length of 5,000 digits": (body(TEXT, Content_Length="9" * 5000), "not a number"),
    "more than was announced": (body(TEXT + b"more", ETag='"1"'), "too long"),
    "other bytes of the same length": (body(bytes(len(TEXT))), "wrong checksum"),
    "a file of this machine": (redirect("file:///etc/passwd"), "HTTP 302"),
    "another protocol": (redirect("ftp://127.0.0.1/x"), "redirects to ftp:"),
    "data in an address": (redirect("data:text/plain,x"), "HTTP 302"),
    "a circle": (redirect("/text8"), "HTTP 302"),
    "no HTTP": (raw(b"\x1b[31mhello\x07\r\n\r\n"), "?[31mhello?"),
    "a status line without end": (raw(b"HTTP/1.1 200 " + b"a" * 100_000), "tiny"),
    "headers without end": (raw(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 1000 + b"\r\n"), "more than 100 headers"),
    "wrong chunks": (raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), "tiny"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_is_refused_in_one_line(tmp_path, lie):
    answer, said = LIES[lie]
    with hostile_server(answer) as url:
        assert said in refused(tmp_path, f"{url}/text8")


def test_an_unknown_protocol_is_not_asked(tmp_path):
    assert "must begin with http: or https:, got gopher:" in refused(tmp_path, "gopher://127.0.0.1/text8")


@pytest.mark.parametrize("sent", [b"", b"some"], ids=["nothing", "a little"])
def test_a_server_that_hangs_is_left(tmp_path, sent):
    over = threading.Event()

    def hang(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(TEXT)))
        handler.end_headers()
        handler.wfile.write(sent)
        over.wait()

    with hostile_server(hang) as url, ExitStack() as at_last:
        at_last.callback(over.set)
        with pytest.raises(DataError, match="timed out"):
            download(f"{url}/text8", tmp_path / "text8", most=MOST, patience=QUICK)
    assert files_under(tmp_path) == []


def test_a_server_that_drips_is_left_however_long_it_goes_on(tmp_path):
    over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not over.wait(0.01):
            handler.wfile.write(b"x")

    with hostile_server(drip) as url, ExitStack() as at_last:
        at_last.callback(over.set)
        with pytest.raises(DataError, match=r"slower than 1e\+06 kB/s"):
            download(f"{url}/text8", tmp_path / "text8", most=MOST, patience=QUICK)
    assert files_under(tmp_path) == []


# -- archives ---------------------------------------------------------------------------------------------------------


def bomb(kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("text8", bytes(BOMB))
    elif kind == "many":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for k in range(200):
                archive.writestr(f"{k}/text8", bytes(len(TEXT)))
    elif kind == "gz":
        with gzip.open(out, "wb", compresslevel=6) as packed:
            packed.write(bytes(BOMB))
    else:  # all its bytes are in a header, or in a member that nobody wants
        kinds = {"tar": member("text8", BOMB), "header": member("x", BOMB, b"x"), "other": member("other", BOMB)}
        with gzip.open(out, "wb", compresslevel=6) as packed:
            packed.write(kinds[kind].tobuf())
            packed.write(bytes(BOMB))
    return out.getvalue()


MORE = [
    ("zip", "all.zip"),
    ("zip", "text8.zip"),
    ("gz", "text8.gz"),
    ("tar", "all.tar.gz"),
    ("other", "all.tar.gz"),
]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("many", "all.zip"),
        ("header", "all.tar.gz"),
        *(pytest.param(kind, name, marks=pytest.mark.slow) for kind, name in MORE),
    ],
)
def test_a_bomb_goes_off_nowhere(tmp_path, kind, name):
    """80 MB in less than one: no file grows beyond what was announced, and memory stays where it was."""
    local = tmp_path / "local"
    local.mkdir()
    (local / name).write_bytes(bomb(kind))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    table = {"tiny": row({"text8": TEXT}, "text", (Web(f"http://127.0.0.1:9/{name}"),))}
    with no_file_beyond(MOST), pytest.raises(DataError) as caught:
        fetch("tiny", cache=tmp_path / "cache", local=local, table=table)
    assert "too long" in str(caught.value) or "wrong checksum" in str(caught.value), caught.value
    assert files_under(tmp_path / "cache") == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < BOMB // 1024


def test_members_stay_inside_whatever_they_are_called(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    work = tmp_path / "a" / "b"
    work.mkdir(parents=True)
    kinds = [
        member("../../victim/text8", len(TEXT)),
        member("/text8", len(TEXT)),
        member("text8", kind=tarfile.SYMTYPE, link=str(victim)),
        member("text8", kind=tarfile.LNKTYPE, link="../../victim"),
        member("text8", kind=tarfile.CHRTYPE),
        member("text8", kind=tarfile.FIFOTYPE),
        member("text8", kind=tarfile.DIRTYPE),
        member("deep/text8", len(TEXT)),
    ]
    (tmp_path / "all.tar.gz").write_bytes(tar(*kinds, data=TEXT))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in ("../../victim", "../../text8", "/text8", "text8"):
            archive.writestr(name, TEXT)
    (tmp_path / "all.zip").write_bytes(out.getvalue())
    for name in ("all.tar.gz", "all.zip"):
        unpack(tmp_path / name, {"text8": 5 * MOST}, work)
    assert victim.read_text() == "mine"
    found = [p for p in work.rglob("*") if not p.is_dir()]
    assert [p.read_bytes() for p in found] == [TEXT] * 6
    assert not any(p.is_symlink() or p.stat().st_nlink > 1 for p in found)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "all.tar.gz", "all.zip", "victim"]


@pytest.mark.parametrize("name", ["all.tar.gz", "all.tar", "all.zip", "text8.gz", "text8.zip"])
def test_a_flipped_bit_is_one_line_or_nothing(tmp_path, name):
    out = io.BytesIO()
    if name.endswith(".zip"):
        with zipfile.ZipFile(out, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("text8", TEXT)
    elif name == "text8.gz":
        out.write(gzip.compress(TEXT))
    else:
        out.write(tar(member("text8", len(TEXT)), data=TEXT, mode="w:gz" if name.endswith("gz") else "w:"))
    rng, local = random.Random(name), tmp_path / "local"
    local.mkdir()
    table = {"tiny": row({"text8": TEXT}, "text", (Web(f"http://127.0.0.1:9/{name}"),))}
    for trial in range(25):
        data = bytearray(out.getvalue())
        data[rng.randrange(min(len(data), 3000))] ^= 1 << rng.randrange(8)
        (local / name).write_bytes(data)
        try:
            folder = fetch("tiny", cache=tmp_path / f"cache{trial}", local=local, table=table)
        except DataError as e:
            assert "\n" not in str(e)  # noqa: PT017
        else:
            assert (folder / "text8").read_bytes() == TEXT


# -- caches -----------------------------------------------------------------------------------------------------------


def part_name(url: str) -> str:
    return f".offbeat-{sha256(url.encode()).hexdigest()[:16]}"


@pytest.mark.parametrize("way", ["link", "hard link", "pipe", "folder"])
@pytest.mark.parametrize("which", ["part", "version"])
def test_a_part_that_is_something_else_is_not_written_through(tmp_path, which, way):
    cache, victim = tmp_path / "cache", tmp_path / "victim"
    cache.mkdir()
    victim.write_text("mine")
    with hostile_server(body(TEXT, ETag='"1"')) as server:
        url = f"{server}/text8"
        trap = cache / f"{part_name(url)}.{which}"
        {
            "link": lambda: trap.symlink_to(victim),
            "hard link": lambda: trap.hardlink_to(victim),
            "pipe": lambda: os.mkfifo(trap),
            "folder": trap.mkdir,
        }[way]()
        if which == "version" and way == "folder":
            with pytest.raises(DataError, match="Is a directory"):
                get(cache, url)
        else:
            get(cache, url)
            assert (cache / "tiny" / "text8").read_bytes() == TEXT
    assert victim.read_text() == "mine"


def test_a_pipe_in_place_of_a_file_is_replaced_and_not_waited_for(tmp_path):
    (tmp_path / "tiny").mkdir()
    os.mkfifo(tmp_path / "tiny" / "text8")
    with hostile_server(body(TEXT)) as url:
        folder = get(tmp_path, f"{url}/text8")
    assert (folder / "text8").read_bytes() == TEXT


def test_a_file_that_is_a_link_is_replaced_and_what_it_leads_to_is_not(tmp_path):
    victim, cache = tmp_path / "victim", tmp_path / "cache"
    victim.write_text("mine")
    (cache / "tiny").mkdir(parents=True)
    (cache / "tiny" / "text8").symlink_to(victim)
    with hostile_server(body(TEXT)) as url:
        folder = get(cache, f"{url}/text8")
    assert not (folder / "text8").is_symlink()
    assert victim.read_text() == "mine"


def test_a_cache_may_be_a_link_to_a_larger_disk(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    with hostile_server(body(TEXT)) as url:
        get(tmp_path / "cache", f"{url}/text8")
    assert files_under(tmp_path / "disk") == ["tiny/text8"]


def test_a_cache_that_is_a_file_or_leads_nowhere_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone" / "away")
    for cache in ("file", "nowhere"):
        with pytest.raises(DataError, match=r"cannot write tiny to .*; set OFFBEAT_DATA to another place"):
            get(tmp_path / cache, "http://127.0.0.1:9/text8")


def test_a_full_disk_keeps_nothing_that_would_fill_it(tmp_path):
    """What came before the disk was full is not kept: the next call would find it full."""
    big = TEXT * 100
    table = {"tiny": row({"text8": big}, "text", ())}
    with hostile_server(body(big, ETag='"1"')) as url:
        table = {"tiny": row({"text8": big}, "text", (Web(f"{url}/text8"),))}
        with no_file_beyond(len(big) // 2), pytest.raises(DataError, match=r"cannot write tiny .*File too large"):
            fetch("tiny", cache=tmp_path, table=table)
        assert files_under(tmp_path) == []
        assert fetch("tiny", cache=tmp_path, table=table).is_dir()


def test_a_kept_part_beyond_the_announced_size_is_begun_anew(tmp_path):
    with hostile_server(body(TEXT, ETag='"1"')) as server:
        url = f"{server}/text8"
        (tmp_path / f"{part_name(url)}.part").write_bytes(bytes(MOST + 1))
        (tmp_path / f"{part_name(url)}.version").write_text('"1"')
        folder = get(tmp_path, url)
    assert (folder / "text8").read_bytes() == TEXT
    assert files_under(tmp_path) == ["tiny/text8"]


def test_what_is_swept_is_not_what_a_link_leads_to(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "letter").write_text("dear")
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / ".offbeat-old").symlink_to(mine)
    os.utime(cache / ".offbeat-old", (0, 0), follow_symlinks=False)
    assert time.time() - (cache / ".offbeat-old").lstat().st_mtime > 10**6
    with hostile_server(body(TEXT)) as url:
        get(cache, f"{url}/text8")
    assert (mine / "letter").read_text() == "dear"
    assert files_under(cache) == ["tiny/text8"]
