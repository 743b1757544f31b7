"""docs/configuration.md: every key of a configuration, written from the keys themselves."""

import json
from collections.abc import Iterator

from offbeat.lab.config.keys import LENGTHS
from offbeat.lab.config.meaning import Key, keys
from offbeat.lab.config.words import KEYS

_HEAD = """# Every setting

Written by `offbeat config --markdown`, from the keys themselves; a test compares. `offbeat config` prints the same on a
terminal, `offbeat config TASK` the values that a task would run with.

The same dotted keys work in three places:

```
offbeat run digits --set optimizer.lr=0.1    # in a shell
offbeat run my.toml                          # in a file, which says optimizer.lr = 0.1
```

and in Python, `offbeat.train("digits", settings={"optimizer.lr": 0.1})`. The commonest have a **word** of their own, a
keyword argument there (`lr=0.1`) and often a flag (`--batch 64`). What is not set is what suits the task, and otherwise
the default given here.

In a file, sections are TOML's:

```toml
task.name = "digits"
optimizer = { name = "adam", lr = 0.001 }

[cluster]
workers = 8
delay = ["30ms@0"]
```
"""
_SECTIONS = {
    "task": "What is trained. Further keys are the options of the task that is named ([tasks.md](tasks.md)); `data` is "
    "a word, too.",
    "solver": "By which rule. Further keys are its hyper-parameters ([solvers.md](solvers.md)) and, with a parameter "
    "server, `clip` (a word, too), `clip_at`, `introduce` and `overlap`.",
    "optimizer": "What makes a step of a gradient. Further keys are those of the optimizer (`momentum`, "
    "`weight_decay`, `betas`).",
    "cluster": "By whom: [clusters.md](clusters.md).",
    "data": "Who gets which samples, how many at a time: [tasks.md](tasks.md).",
    "budget": "How long.",
    "schedule": "The learning rate over the samples that everybody has processed.",
    "scale": "What changes with the number of workers.",
    "evaluate": "How often it is looked at.",
    "record": "What is written down besides.",
    "local": "The engine of real processes: [local.md](local.md).",
}


def markdown() -> str:
    """The page."""
    return "\n".join([_HEAD, *_tables()]).rstrip() + "\n"


def _tables() -> Iterator[str]:
    words = {key: word for word, key in KEYS.items()} | {f"budget.{unit}": "budget" for unit in (*LENGTHS, "per")}
    sections: dict[str, list[Key]] = {}
    for key in keys():
        sections.setdefault(key.key.partition(".")[0] if "." in key.key else "", []).append(key)
    for section, rows in sections.items():
        yield f"## {section.capitalize() or 'The whole run'}\n"
        if section in _SECTIONS:
            yield f"{_SECTIONS[section]}\n"
        yield "| key | word | type | default | meaning | example |"
        yield "|---|---|---|---|---|---|"
        yield from (_row(key, words.get(key.key, "")) for key in rows)
        yield ""


def _row(key: Key, word: str) -> str:
    default = "" if key.default is None else f"`{_cell(json.dumps(key.default))}`"
    shown = [f"`{key.key}`", f"`{word}`" if word else "", _cell(key.type), default, _cell(key.meaning)]
    return f"| {' | '.join(shown)} | `{_cell(key.example)}` |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
