"""Chromium without a window, driven over a pipe (nothing listens): what a page says, requests and looks like."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_LIMIT_SECONDS = 60.0


def require() -> None:
    """Skips without a browser; where one is required (OFFBEAT_REQUIRE_BROWSER=1), fails instead."""
    if CHROMIUM is None:
        reason = "no chromium is installed"
        if os.environ.get("OFFBEAT_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and OFFBEAT_REQUIRE_BROWSER=1 asks for it")
        pytest.skip(reason)


class Tab:
    """One page. `errors` are console errors and exceptions, `requests` whatever was asked for, by address."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._number, self._buffer = 0, b""
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if getattr(self, "_session", None):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _LIMIT_SECONDS
        while time.monotonic() < end:
            answer = self._read()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)
        raise TimeoutError(f"{method} was not answered in {_LIMIT_SECONDS} s")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._back, 1 << 20)
            if not part:
                raise RuntimeError("chromium has gone")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        answer: dict[str, Any] = json.loads(text)
        return answer

    def _note(self, event: dict[str, Any]) -> None:
        what = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(what["exceptionDetails"].get("exception", what)))
            case "Runtime.consoleAPICalled" if what["type"] in ("error", "warning", "assert"):
                self.errors.append(f"{what['type']}: {what['args']}")
            case "Log.entryAdded" if what["entry"]["level"] == "error":
                self.errors.append(str(what["entry"]["text"]))
            case "Network.requestWillBeSent":
                self.requests.append(what["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.errors.append(f"dialog: {what['message']}")
                self._session and os.write(
                    self._to,
                    json.dumps(
                        {
                            "id": 0,
                            "sessionId": self._session,
                            "method": "Page.handleJavaScriptDialog",
                            "params": {"accept": True},
                        }
                    ).encode()
                    + b"\0",
                )

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        end = time.monotonic() + _LIMIT_SECONDS
        while not self.run(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"{expression} did not come true in {_LIMIT_SECONDS} s")
            time.sleep(0.05)

    def size(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, path: Path) -> None:
        """A page from disk, until all of its figures are drawn."""
        self.errors.clear()
        self.requests.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.readyState === 'complete' && document.documentElement.dataset.ready === 'true'")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


@contextlib.contextmanager
def tab() -> Iterator[Tab]:
    """A browser of its own with an empty profile; ended by the one who started it."""
    assert CHROMIUM is not None
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:

        def place() -> None:  # chromium reads commands from 3 and writes answers to 4
            high = [os.dup(to_read), os.dup(back_write)]
            safe = [os.dup(fd) for fd in high]
            os.dup2(safe[0], 3)
            os.dup2(safe[1], 4)

        process = subprocess.Popen(
            [
                CHROMIUM,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--use-gl=angle",
                "--use-angle=swiftshader",
                "--enable-unsafe-swiftshader",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-dev-shm-usage",
                f"--user-data-dir={profile}",
                "--remote-debugging-pipe",
            ],
            preexec_fn=place,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(back_write)
        try:
            yield Tab(process, to_write, back_read)
        finally:
            process.terminate()
            process.wait(20)
            os.close(to_write)
            os.close(back_read)
