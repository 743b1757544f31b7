"""Whose folder it is: code that a folder names runs only if this user made the folder here, or says that it may.

So with a cluster that it names: whoever answers there is handed the token of one's own, and sends what is unpickled.

A run whose configuration names code (`package.module:name`), or a Ray at an address, is signed when it begins:
HMAC-SHA256 over the configuration and the files in which its code was found, with a key that lies in the user's state
directory (`$XDG_STATE_HOME/offbeat/key`, else `~/.local/state/offbeat/key`; 32 random bytes that nobody else can read).
A folder from elsewhere has no valid signature, because whoever made it does not have the key; and one of the user's own
that comes back with another configuration, or beside other code, has none either.
"""

import hashlib
import hmac
import importlib.machinery
import json
import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from offbeat.core.errors import StoreError
from offbeat.core.format import json_safe
from offbeat.core.legible import legible
from offbeat.folders.run_files import RunFiles
from offbeat.solvers import stand_here

_BYTES = 32


def named_code(config: Mapping[str, Any]) -> dict[str, str]:
    """`{"task": "mytask:rings"}`: the code of others that a configuration would import."""
    found = {}
    for section in ("task", "solver"):
        name = config.get(section, {}).get("name")
        if isinstance(name, str) and ":" in name:
            found[section] = name
    return found


def named_cluster(config: Mapping[str, Any]) -> str | None:
    """The address of the Ray that a run would connect with; none where this machine itself knows which."""
    section = config.get("ray") if config.get("engine") == "ray" else None
    address = section.get("address") if isinstance(section, Mapping) else None
    return None if address in (None, "auto", "local") else str(address)


def place_of(name: str) -> str:
    """The file or folder in which Python would look for `package.module:name`; nothing is imported to find out."""
    stand_here()
    package = name.partition(":")[0].partition(".")[0]
    if package in sys.builtin_module_names:
        return "Python itself"
    try:
        spec = importlib.machinery.PathFinder.find_spec(package)
    except (ImportError, ValueError, OSError):
        spec = None
    if spec is None:
        return "nowhere"
    return spec.origin or ", ".join(spec.submodule_search_locations or ()) or "nowhere"


def signature(config: Mapping[str, Any]) -> str | None:
    """That this user makes a run of this configuration here; None where it names nothing, or there is no key."""
    code = named_code(config)
    key = _key(make=True) if code or named_cluster(config) else None
    return None if key is None else _sign(key, config, code)


def signed_here(run_json: bytes, asked: Mapping[str, Any]) -> bytes:
    """run.json of a run that another machine made because we asked for it: signed with this user's key.

    Only if it names the code, and the cluster, that we asked for.
    """
    found = json.loads(run_json)
    names = [(named_code(config), named_cluster(config)) for config in (found["config"], asked)]
    if found.get("signature") is None or names[0] != names[1]:
        return run_json
    return (json.dumps({**found, "signature": signature(found["config"])}, indent=2) + "\n").encode()


def check_trusted(run: RunFiles, trust: bool, *, connects: bool = False) -> None:
    """Before anything of a folder's configuration is built: an error says what would be imported, and from where.

    `connects`: whether the engine is going to be built, too.
    """
    code, cluster = named_code(run.config), named_cluster(run.config) if connects else None
    if trust or not (code or cluster):
        return
    key = _key(make=False)
    if key is not None and hmac.compare_digest(_sign(key, run.config, code), run.info.signature or ""):
        return
    would = [f"import {', '.join(f'{what} {name} ({place_of(name)})' for what, name in code.items())}"] if code else []
    would += [f"connect with Ray at {cluster}"] if cluster else []
    names = " and ".join(n for n, there in (("code", code), ("a cluster", cluster)) if there)
    raise StoreError(
        f"{run.path} names {names} and was not made by you, here, with it: it would {legible(' and '.join(would))}; "
        "if you trust that, say --trust (in Python: trust=True)"
    )


def _sign(key: bytes, config: Mapping[str, Any], code: Mapping[str, str]) -> str:
    signed = {"config": json_safe(config), "code": {name: place_of(name) for name in code.values()}}
    return hmac.new(key, json.dumps(signed, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _key(*, make: bool) -> bytes | None:
    """The user's own; None where there is none, and none can be made."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    path = Path(state) / "offbeat" / "key"
    with suppress(OSError):
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside = path.with_name(f".key.{os.getpid()}")
            with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(_BYTES))
            with suppress(FileExistsError):  # another process was quicker
                os.link(beside, path)
            os.unlink(beside)
        key = path.read_bytes()
        return key if len(key) == _BYTES else None
    return None
