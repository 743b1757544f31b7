"""What would run, without running it: facts by name, which show themselves in a shell, in Python and in a notebook."""

from collections.abc import Iterator, Mapping
from typing import Any

from offbeat.core.legible import legible

_WIDTH = 20
"""Of the names, in letters."""


class DryRun(Mapping[str, Any]):
    """What `--dry-run` says, and `dry_run=True` returns: nothing was run or written. `found["wall_time"]` is a fact."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = dict(facts)

    def __getitem__(self, name: str) -> Any:
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __repr__(self) -> str:
        """A line for each fact; one of several lines, such as a configuration, stands below its name."""
        return "\n".join(f"{name:{_WIDTH}} {_text(value)}" for name, value in self._said())

    def _repr_html_(self) -> str:
        from offbeat.report.notebook import html_table

        lines = [(name, line) for name, value in self._said() for line in _text(value).split("\n")]
        return html_table(("would run", ""), lines)

    def _said(self) -> Iterator[tuple[str, Any]]:
        return ((name.replace("_", " "), value) for name, value in self._facts.items())


def _text(value: Any) -> str:
    return "\n".join(map(legible, str(value).rstrip("\n").split("\n")))
