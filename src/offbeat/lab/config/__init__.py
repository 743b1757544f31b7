"""A run as one frozen, validated record. The same dotted keys in TOML files, in `--set` and in Python."""

from offbeat.lab.config.config import Config
from offbeat.lab.config.keys import combinations, known_keys, merge, put
from offbeat.lab.config.make import make
from offbeat.lab.config.objects import NONE, Objects, given_as_objects, say_objects
from offbeat.lab.config.toml import parse_setting, read_toml, to_toml
from offbeat.lab.config.words import keys_of, say

__all__ = [
    "NONE",
    "Config",
    "Objects",
    "combinations",
    "given_as_objects",
    "keys_of",
    "known_keys",
    "make",
    "merge",
    "parse_setting",
    "put",
    "read_toml",
    "say",
    "say_objects",
    "to_toml",
]
