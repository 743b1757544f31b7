"""Errors that a person reads: one line that says what, what was given, and what is allowed."""

from collections.abc import Iterable
from difflib import get_close_matches


class OffbeatError(Exception):
    """Anything offbeat says on purpose; the command line prints it as one line, without a traceback."""

    exit_code = 1


class ConfigError(OffbeatError):
    """Bad input: a wrong name, value, file or combination."""

    exit_code = 2


class DataError(ConfigError):
    """A dataset that is missing, truncated, corrupt or not what it should be."""


class StoreError(ConfigError):
    """A run folder that cannot be written, read, or continued."""


class RuleError(OffbeatError):
    """A solver's rule did what no rule may do; the message names it."""


class OffbeatWarning(UserWarning):
    """Something that was passed over; the command line prints it as one line."""


_SYNONYMS = {
    "async": "asgd",
    "async-sgd": "asgd",
    "asynchronous": "asgd",
    "synchronous": "sync",
    "sync-sgd": "sync",
    "ssgd": "sync",
    "sgd": "plain",
    "sequential": "plain",
    "ddp": "allreduce",
    "ring": "allreduce",
    "gossip": "ad-psgd",
    "fedavg": "local-sgd",
    "federated": "local-sgd",
    "elastic": "easgd",
    "stale-synchronous": "ssp",
    "simulator": "sim",
    "simulation": "sim",
    "processes": "local",
    "real": "local",
    "learning_rate": "lr",
    "workers": "cluster",
    "epochs": "budget",
}
"""What else people call a solver, an engine or an argument, where the letters would lead elsewhere."""


def nearest(got: str, known: Iterable[str]) -> str:
    """`" (did you mean 'asgd'?)"`, or nothing when no known name is close."""
    names = list(known)
    same = _SYNONYMS.get(got.lower())
    small = {name.lower(): name for name in names}
    found = (small[name] for name in get_close_matches(got.lower(), small, n=1, cutoff=0.6))
    close = [same] if same in names else list(found)
    return f" (did you mean {close[0]!r}?)" if close else ""


def unknown(what: str, got: str, known: Iterable[str]) -> ConfigError:
    """The one shape of an unknown-name error: the name, the nearest known one, all known ones."""
    names = sorted(known)
    got = got if len(got) <= 100 else f"{got[:97]}..."
    return ConfigError(f"unknown {what} {got!r}{nearest(got, names)}; known: {', '.join(names)}")
