"""How commands print: rows, dry runs, JSON; and the exit code of each status."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from offbeat.core.format import json_safe as json_safe

if TYPE_CHECKING:
    from offbeat.lab.studies.dry_run import DryRun

EXIT = {"done": 0, "failed": 1, "diverged": 3}


def print_dry_run(found: "DryRun", as_json: bool) -> None:
    print(json.dumps(json_safe(found)) if as_json else found)


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    from rich.table import Table

    from offbeat import terminal

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in rows[0]:
        table.add_column(terminal.plain_text(name))
    for row in rows:
        table.add_row(*(terminal.plain_text(v) for v in row.values()))
    terminal.console().print(table)
