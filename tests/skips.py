"""What was not tested, and why, at the end of a session: a number alone hides what is missing."""

from collections import Counter
from typing import Any


def reasons(skipped: list[Any]) -> list[str]:
    """One line a reason, the most frequent first."""
    found = Counter(str(r.longrepr[2] if isinstance(r.longrepr, tuple) else r.longrepr) for r in skipped)
    return [f"{n} x {why.removeprefix('Skipped: ')}" for why, n in found.most_common()]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} skipped:")
        for line in reasons(skipped):
            terminalreporter.write_line(f"  {line}")
