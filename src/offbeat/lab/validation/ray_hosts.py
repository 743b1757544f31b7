"""Hosts of our own with a Ray node on each, for as long as they are needed."""

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from offbeat.core.errors import ConfigError, OffbeatError
from offbeat.engines.ray.connection import require_ray
from offbeat.lab.validation.namespaces import Namespaces, address, obstacle

PORT = 6399
HEAD = f"{address(1)}:{PORT}"
"""Where the Ray cluster is found, from any of its hosts."""
_START_SECONDS, _TRIES = 180.0, 4
_STORE = 80_000_000  # bytes of Ray's object store on each host, which carries no vectors


class RayHosts(Namespaces):
    """The first host is the head of the Ray cluster."""

    def __init__(self, name: str, count: int, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """`folder`: Ray's, and it must have a short name, because sockets lie below it; `settings`: of Ray."""
        super().__init__(name, count)
        self.folder, self.settings = folder, dict(settings or {})

    @property
    def token(self) -> Path:
        """What a process must know to take part in the Ray cluster."""
        return self.folder / "token"

    def open(self) -> None:
        self.token.touch(mode=0o600)
        self.token.write_text(secrets.token_hex(32), encoding="ascii")
        super().open()

    @property
    def env(self) -> Mapping[str, str]:
        mine = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token), "RAY_USAGE_STATS_ENABLED": "0"}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        return {**inherited, **self.settings, **mine, "PATH": path, "RAY_TMPDIR": str(self.folder)}

    def start(self, k: int, cpus: int = 2, **env: str) -> None:
        """Its Ray node; its processes have these variables, too."""
        where = ["--head", "--port", PORT] if k == 1 else ["--address", HEAD]
        words = ["ray", "start", *where, "--node-ip-address", address(k), "--num-cpus", cpus]
        words += ["--object-store-memory", _STORE, "--disable-usage-stats"]
        words += ["--include-dashboard", "false", "--temp-dir", self.folder] if k == 1 else []
        for _ in range(_TRIES):  # Ray gives up after 30 s, which a busy machine may need
            done = self.run(k, *words, timeout=_START_SECONDS, **env)
            if not done.returncode:
                return
            self.kill(k)
        said = (done.stdout + done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
        raise OffbeatError(f"Ray could not be started on host {k} in {_TRIES} attempts: {said[-1]}")


def check_rights() -> None:
    """Refuses, with what is missing, where there can be no such hosts."""
    require_ray()
    if (why := obstacle()) is not None:
        raise ConfigError(f"hosts with links of their own cannot be made here: {why}")


@contextmanager
def server_and_workers(workers: int) -> Iterator[RayHosts]:
    """Host 1 for driver and server, where no worker has a place, and one for each worker. At the end all is gone."""
    folder = Path(tempfile.mkdtemp(prefix="obr", dir="/tmp"))
    made = RayHosts(f"obv{os.getpid()}", 1 + workers, folder)
    try:
        made.open()
        made.start(1, cpus=0)
        for k in range(2, made.count + 1):
            made.start(k, cpus=1)
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
