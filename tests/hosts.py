"""Several hosts with addresses of their own on one machine: network namespaces around a switch. Needs root.

Nothing of it is in the machine's own network: the switch has a namespace, too. Links can be made slow or cut.
"""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

PORT = 6399
BIN = Path(sys.executable).parent


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


def sh(*words: object) -> str:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, words))}: {done.stderr}"
    return done.stdout


class Hosts:
    """Hosts 1 to n, 10.88.0.1 to 10.88.0.n, with a Ray node each; the first is its head."""

    def __init__(self, count: int, folder: Path) -> None:
        self.name, self.count, self.folder = f"ob{os.getpid()}", count, folder
        self.token = folder / "token"
        self.token.write_text(secrets.token_hex(32), encoding="ascii")
        self.token.chmod(0o600)
        sh("ip", "netns", "add", self.space(0))
        sh("ip", "-n", self.space(0), "link", "add", "name", "switch", "type", "bridge")
        sh("ip", "-n", self.space(0), "link", "set", "switch", "up")
        for k in range(1, count + 1):
            self._add(k)

    def space(self, k: int) -> str:
        """The namespace of host k; of the switch, for 0."""
        return f"{self.name}h{k}"

    def address(self, k: int) -> str:
        return f"10.88.0.{k}"

    def _add(self, k: int) -> None:
        space, switch = self.space(k), self.space(0)
        sh("ip", "netns", "add", space)
        sh("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"p{k}", "netns", switch)
        sh("ip", "-n", switch, "link", "set", f"p{k}", "master", "switch")
        sh("ip", "-n", switch, "link", "set", f"p{k}", "up")
        sh("ip", "-n", space, "addr", "add", f"{self.address(k)}/24", "dev", "eth0")
        sh("ip", "-n", space, "link", "set", "lo", "up")
        sh("ip", "-n", space, "link", "set", "eth0", "up")

    @property
    def env(self) -> dict[str, str]:
        quick = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "3000"}
        quick |= {"RAY_health_check_failure_threshold": "5", "RAY_health_check_initial_delay_ms": "1000"}
        mine = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token), "RAY_USAGE_STATS_ENABLED": "0"}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        return {**inherited, **quick, **mine, "PATH": path, "RAY_TMPDIR": str(self.folder)}

    def start(self, k: int, cpus: int = 2, **env: str) -> None:
        """Its Ray node; its processes have these variables, too."""
        where = ["--head", "--port", PORT] if k == 1 else ["--address", f"{self.address(1)}:{PORT}"]
        words = ["ray", "start", *where, "--node-ip-address", self.address(k), "--num-cpus", cpus]
        words += ["--object-store-memory", 80_000_000, "--disable-usage-stats"]
        words += ["--include-dashboard", "false", "--temp-dir", self.folder] if k == 1 else []
        done = self.run(k, *words, timeout=180, **env)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, k: int, *words: object, timeout: float, **env: str) -> subprocess.CompletedProcess[str]:
        command = ["ip", "netns", "exec", self.space(k), *(str(w) for w in words)]
        mine = {**self.env, **env}
        return subprocess.run(command, env=mine, capture_output=True, text=True, check=False, timeout=timeout)

    def popen(self, k: int, *words: object, out: Path) -> subprocess.Popen[bytes]:
        command = ["ip", "netns", "exec", self.space(k), *(str(w) for w in words)]
        with out.open("wb") as file:
            return subprocess.Popen(command, env=self.env, stdout=file, stderr=subprocess.STDOUT)

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

    def slow(self, k: int, rate: str) -> None:
        """All that host k sends goes at this rate."""
        sh("ip", "netns", "exec", self.space(k), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf",
           "rate", rate, "burst", "64kbit", "latency", "100ms")  # fmt: skip

    def fast(self, k: int) -> None:
        sh("ip", "netns", "exec", self.space(k), "tc", "qdisc", "del", "dev", "eth0", "root")

    def cut(self, k: int) -> None:
        """Nothing comes to host k, and nothing from it."""
        sh("ip", "-n", self.space(0), "link", "set", f"p{k}", "down")

    def mend(self, k: int) -> None:
        sh("ip", "-n", self.space(0), "link", "set", f"p{k}", "up")

    def close(self) -> None:
        for k in range(self.count, 0, -1):
            self.kill(k)
        for k in range(self.count + 1):
            sh("ip", "netns", "del", self.space(k))
