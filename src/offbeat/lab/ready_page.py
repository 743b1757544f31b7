"""docs/ready-clusters.md: every cluster that comes with the package, and where each of its numbers comes from."""

from collections.abc import Iterator, Mapping
from typing import Any

from offbeat.lab.clusters import ReadyCluster, ready_clusters

_HEAD = """# Ready clusters

Written by `offbeat list clusters --markdown`, from the files themselves; a test compares. They are usable by name,
everywhere a cluster is:

```
offbeat time --cluster spot16 --solvers sync,asgd --parameters 25.6M --batch 32
offbeat run digits --solver asgd --cluster laptop
offbeat list clusters
```

and in Python, `offbeat.time("sync,asgd", "spot16", parameters="25.6M", batch=32)`. What else you say comes after them
(`--workers 8`, `--latency 1ms`).

They are places to start from, not measurements of your machines: **most numbers are assumed**, and each says so.
Compute times are those of one batch of the model that is named. A number that matters to you is better measured:
`offbeat calibrate` reads it off a real run ([clusters.md](clusters.md#from-a-real-run)).
"""


def markdown() -> str:
    """The page."""
    return "\n".join([_HEAD, *_overview(), *(line for r in ready_clusters().values() for line in _section(r))])


def _overview() -> Iterator[str]:
    yield "| name | workers | what |"
    yield "|---|---:|---|"
    for r in ready_clusters().values():
        yield f"| [`{r.name}`](#{r.name}) | {r.cluster['workers']:,} | {r.title} |"
    yield ""


def _section(r: ReadyCluster) -> Iterator[str]:
    yield f"## {r.name}\n"
    yield f"{r.title}. Its times are for {r.model}.\n"
    yield "| setting | value | where it comes from |"
    yield "|---|---|---|"
    sources = dict(dotted(r.sources))
    for key, value in dotted(r.cluster):
        yield f"| `{key}` | {_cell(value)} | {sources[key]} |"
    yield ""


def dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Keys and values, those of inner tables with dots."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _cell(value: Any) -> str:
    return "<br>".join(f"`{v}`" for v in (value if isinstance(value, list) else [value]))
