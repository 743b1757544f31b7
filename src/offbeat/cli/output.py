"""How commands print: rows, estimates, JSON; and the exit code of each status."""

import json
from collections.abc import Sequence
from typing import Any

from offbeat.core.format import json_safe as json_safe
from offbeat.core.legible import legible

EXIT = {"done": 0, "failed": 1, "diverged": 3}


def print_estimate(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(json_safe(found)))
        return
    for name, value in found.items():
        print(f"{name.replace('_', ' '):20} {legible(value)}")


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    from offbeat import terminal

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in rows[0]:
        table.add_column(terminal.plain_text(name))
    for row in rows:
        table.add_row(*(terminal.plain_text(v) for v in row.values()))
    terminal.console().print(table)
