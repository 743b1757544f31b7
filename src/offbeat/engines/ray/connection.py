"""Our connection with Ray: to a running cluster, or to one that is started on this machine and ends with us."""

import contextlib
import importlib.util
import os
import signal
import socket
import sys
import threading
from typing import Any

from offbeat.core.errors import ConfigError

_REACH_SECONDS = 10.0
_ANSWER_SECONDS = 3.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: a Ray that is started here uses the loopback, and nothing else


ENVIRONMENT = {"MALLOC_ARENA_MAX": "1"}
"""Of our processes: without it, threads that Ray starts give every large vector back (see `keep_freed_memory`)."""


class Connection:
    """Ray, for as long as it is open. One that was there before stays."""

    def __init__(self, address: str | None, cpus: float) -> None:
        """`cpus`: how many a Ray of our own offers, whatever the machine has: processes share its cores."""
        self._ours = False
        self.environment = ENVIRONMENT
        """What its processes have to be given of it: those of a Ray of our own inherit it from us."""
        ray = _import(address)
        if address is not None:
            _reach(address)
        if ray.is_initialized():
            refuse_another(address, ray.get_runtime_context().gcs_address)
            return
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if address is None:
            # "local": or Ray would join one that runs here already, whoever started it.
            os.environ.update(ENVIRONMENT)
            self.environment = {}
            options |= {"address": "local", "num_cpus": max(1, round(cpus + 0.49)), "include_dashboard": False}
        else:
            options["address"] = address
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError, OSError) as e:
            where = "on this machine" if address is None else f"at {address}"
            raise ConfigError(f"no connection with Ray {where}: {_first_line(e)}") from None
        self._ours = True
        _quieten()
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():  # Ray takes them over, to print where it was
                signal.signal(number, handler)

    def close(self) -> None:
        if self._ours:
            import ray

            ray.shutdown()
        self._ours = False


def _quieten() -> None:
    """Ray prints pages of its own state whenever a process ends, with no option against it: we say who was lost."""
    with contextlib.suppress(ImportError):
        from ray._private import worker

        worker.print_to_stdstream = lambda *_, **__: None


def require_ray() -> None:
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("zmq") is None:
        raise ConfigError("the ray engine needs Ray and ZeroMQ: pip install 'offbeat[ray]'")


def _import(address: str | None) -> Any:
    """Ray, with authentication: its libraries read these variables when they are imported."""
    imported = "ray" in sys.modules
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if address is None:
        os.environ.setdefault(_LOOPBACK, "0")
    import ray

    if imported and not ray.is_initialized():
        _read_again()
    return ray


def _read_again() -> None:
    """Somebody has imported Ray before: it has read other values, and its own processes would read these. Then they
    would wait for each other until Ray gives up."""
    try:
        from ray._private import ray_constants
        from ray._private.authentication.authentication_utils import is_token_auth_enabled
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")
        ray_constants.ENABLE_RAY_CLUSTER = ray_constants.env_bool(_LOOPBACK, True)
        agreed = is_token_auth_enabled() == (os.environ["RAY_AUTH_MODE"].lower() == "token")
    except (ImportError, AttributeError):  # another version of Ray
        agreed = False
    if not agreed:
        raise ConfigError(
            "Ray was imported before it was told how to authenticate: set RAY_AUTH_MODE=token and "
            f"{_LOOPBACK}=0 in the environment, or import it after the first run"
        )


def _reach(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # "auto": whatever this machine belongs to
    if address.startswith("ray://"):
        raise ConfigError(f"address={address} is of a Ray client: run on a machine of the cluster, with host:port")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_SECONDS).close()
    except OSError as e:
        raise ConfigError(f"no Ray answers at {address} within {_REACH_SECONDS:.0f} s: {_first_line(e)}") from None


def refuse_another(address: str | None, there: str) -> None:
    """A process has one connection with Ray at a time: that to another cluster is not silently taken for it."""
    if address not in (None, "auto", there) and _resolved(address) != there:
        raise ConfigError(
            f"this process is connected with the Ray at {there}, and address={address} is asked for: leave it out to "
            "use that one, or end the connection first with ray.shutdown()"
        )


def _resolved(address: str) -> str:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host)
    return f"{host}:{port}"


def is_there(machine: str) -> bool:
    """Whether a machine of the cluster still answers: Ray itself takes a while to notice that one does not."""
    import ray

    for node in ray.nodes():
        if node["Alive"] and node["NodeManagerAddress"] == machine:
            with contextlib.suppress(OSError):
                socket.create_connection((machine, node["NodeManagerPort"]), timeout=_ANSWER_SECONDS).close()
                return True
    return False


def _first_line(e: BaseException) -> str:
    return next((line for line in str(e).splitlines() if line.strip()), type(e).__name__)
