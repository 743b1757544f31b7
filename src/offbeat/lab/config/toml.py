"""Configurations as TOML."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.core.units import format_size

_MOST_BYTES = 16 << 20


def read_toml(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:  # which may be a pipe, and without end
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ConfigError(f"{path} has more than {format_size(_MOST_BYTES)}: that is no configuration")
        return tomllib.loads(data.decode())
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path} is not valid TOML: {e}") from None
    except ValueError:  # Python reads whole numbers of at most 4,300 digits
        raise ConfigError(f"{path} holds a number that no setting can hold") from None
    except RecursionError:
        raise ConfigError(f"{path} is nested too deeply") from None


def parse_setting(text: str) -> tuple[str, Any]:
    """`optimizer.lr=0.1` -> ("optimizer.lr", 0.1). Values are TOML; what is not is taken as a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value, such as optimizer.lr=0.1, got {text!r}")
    return key.strip(), parse_value(value, f"--set {key.strip()}")


def parse_value(text: str, what: str) -> Any:
    """A value as TOML has it; what is not TOML is taken as a string."""
    try:
        found = tomllib.loads(f"v = {text}")
        return found["v"] if len(found) == 1 else text.strip()
    except tomllib.TOMLDecodeError:
        return text.strip()
    except ValueError:  # Python reads whole numbers of at most 4,300 digits
        raise ConfigError(f"{what} is a number that no setting can hold") from None
    except RecursionError:
        raise ConfigError(f"{what} is nested too deeply") from None


def to_toml(values: Mapping[str, Any]) -> str:
    """TOML of a configuration: scalars first, then one table a section; what is not set is left out."""
    lines = _lines({k: v for k, v in values.items() if not isinstance(v, dict)})
    for name, section in values.items():
        if isinstance(section, dict) and section:
            lines += ["", f"[{name}]", *_lines(section)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any]) -> list[str]:
    return [f"{k} = {_toml(v)}" for k, v in values.items() if v is not None]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
