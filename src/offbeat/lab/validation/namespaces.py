"""Several hosts with addresses of their own on one machine: network namespaces around a switch. Needs root.

Nothing of it is in the machine's own network: the switch has a namespace, too. Links can be made slow or cut.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from offbeat.core.errors import OffbeatError

_BURST, _QUEUE = "64kbit", "100ms"  # of a slow link: what may pass at once, and how long a byte waits at most


def obstacle() -> str | None:
    """Why there can be none here; None if there can."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "ip and tc are not installed (Debian's iproute2)"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    name = f"obtry{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"network namespaces cannot be made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


def address(k: int) -> str:
    """Of host k, in a network that nobody outside sees."""
    return f"10.88.0.{k}"


def sh(*words: object) -> str:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OffbeatError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


class Namespaces:
    """Hosts 1 to n, 10.88.0.1 to 10.88.0.n."""

    def __init__(self, name: str, count: int) -> None:
        """`name`: all namespaces begin with it."""
        self.name, self.count = name, count

    def open(self) -> None:
        """Makes them. Whatever happens, `close` takes away what there is."""
        sh("ip", "netns", "add", self.space(0))
        sh("ip", "-n", self.space(0), "link", "add", "name", "switch", "type", "bridge")
        sh("ip", "-n", self.space(0), "link", "set", "switch", "up")
        for k in range(1, self.count + 1):
            self._add(k)

    def close(self) -> None:
        """Ends everything that runs on the hosts, by its number, and takes them away. Ctrl-C waits until it is done."""
        with _undisturbed():
            there = sh("ip", "netns", "list").split()
            for k in range(self.count, 0, -1):
                if self.space(k) in there:
                    self.kill(k)
            for k in range(self.count + 1):
                if self.space(k) in there:
                    sh("ip", "netns", "del", self.space(k))

    def space(self, k: int) -> str:
        """The namespace of host k; of the switch, for 0."""
        return f"{self.name}h{k}"

    def _add(self, k: int) -> None:
        space, switch = self.space(k), self.space(0)
        sh("ip", "netns", "add", space)
        sh("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{k}", "netns", switch)
        sh("ip", "-n", switch, "link", "set", f"p{k}", "master", "switch")
        sh("ip", "-n", switch, "link", "set", f"p{k}", "up")
        sh("ip", "-n", space, "addr", "add", f"{address(k)}/24", "dev", "eth0")
        sh("ip", "-n", space, "link", "set", "lo", "up")
        sh("ip", "-n", space, "link", "set", "eth0", "up")

    # -- processes ----------------------------------------------------------------------------------------------

    @property
    def env(self) -> Mapping[str, str]:
        """Of every process on a host."""
        return os.environ

    def run(self, k: int, *words: object, timeout: float, **env: str) -> subprocess.CompletedProcess[str]:
        """On host k, to its end."""
        mine = {**self.env, **env}
        return subprocess.run(
            self._on(k, *words), env=mine, capture_output=True, text=True, check=False, timeout=timeout
        )

    def popen(self, k: int, *words: object, out: Path) -> subprocess.Popen[bytes]:
        with out.open("wb") as file:
            return subprocess.Popen(self._on(k, *words), env=self.env, stdout=file, stderr=subprocess.STDOUT)

    def _on(self, k: int, *words: object) -> list[str]:
        return ["ip", "netns", "exec", self.space(k), *(str(w) for w in words)]

    def pids(self, k: int) -> list[int]:
        done = subprocess.run(["ip", "netns", "pids", self.space(k)], capture_output=True, text=True, check=False)
        return [int(p) for p in done.stdout.split()]

    def kill(self, k: int) -> None:
        """The host loses its power."""
        for _ in range(50):
            found = self.pids(k)
            if not found:
                return
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    # -- links --------------------------------------------------------------------------------------------------

    def slow(self, k: int, rate: str) -> None:
        """All that host k sends, and all that it is sent, goes at this rate (`100mbit`): each way has a link."""
        for space, device in ((self.space(k), "eth0"), (self.space(0), f"p{k}")):
            sh("ip", "netns", "exec", space, "tc", "qdisc", "replace", "dev", device, "root", "tbf",
               "rate", rate, "burst", _BURST, "latency", _QUEUE)  # fmt: skip

    def cut(self, k: int) -> None:
        """Nothing comes to host k, and nothing from it."""
        sh("ip", "-n", self.space(0), "link", "set", f"p{k}", "down")

    def mend(self, k: int) -> None:
        sh("ip", "-n", self.space(0), "link", "set", f"p{k}", "up")


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C and the like come to nobody, neither here nor in what is called from here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
