"""docs/findings.md: what the runs say about the questions of the papers, in prose whose every number is computed.

A finding is words with places for numbers: `{ours RECIPE axis=value,...}` is the mean of such cells of ours,
`{published ...}` that of the paper's, `{claim RECIPE KEY}` the statistic of a claim with its interval, `{variant RECIPE
KEY VARIANT}` the same in another reading. Below them stand the claims with their verdicts, from the ledger.
"""

import re
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from offbeat.core.errors import ConfigError
from offbeat.lab.papers.answers_text import ANSWERS, FOREWORD
from offbeat.lab.papers.beside import Compared, beside
from offbeat.lab.papers.claim_rules import matches
from offbeat.lab.papers.claims import claim_row, decisions, qualified
from offbeat.lab.papers.deciding import NOT_RUN
from offbeat.lab.papers.expansion import parse_cells
from offbeat.lab.papers.pages import charts_of, largest
from offbeat.lab.papers.recipe import recipe
from offbeat.lab.papers.stored import stored
from offbeat.report.numbers import mean

PLACE = re.compile(r"\{(ours|published|claim|variant) (\S+) ([^{}]+)\}")


def findings_page() -> str:
    """docs/findings.md."""
    parts = [FOREWORD]
    for finding in ANSWERS:
        parts.append(f"## {finding.question}\n")
        parts.extend(f"{_wrapped(filled(' '.join(p.split())))}\n" for p in finding.said.strip().split("\n\n"))
        parts.extend(_figure(name) for name in finding.figures)
        for name in finding.recipes:
            told = [row for row in _claims(name) if row["verdict"] != NOT_RUN]
            if told:
                parts.append(f"`{name}`, {recipe(name).place}:\n")
                parts.append("\n".join(_claim(row) for row in told) + "\n")
    return "\n".join(parts)


def filled(words: str) -> str:
    """Words with their numbers put in; a number that is not there is an error, not a blank."""
    return PLACE.sub(lambda found: _number(*found.groups()), words)


def _wrapped(words: str) -> str:
    return fill(words, 120, break_long_words=False, break_on_hyphens=False)


def _number(kind: str, name: str, rest: str) -> str:
    if kind in ("ours", "published"):
        value = mean([v for c in _cells(name, rest) if (v := c.mean if kind == "ours" else c.published) is not None])
        if value is None:
            raise ConfigError(f"findings: {kind} of {name} has no cell {rest}")
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.3f}"
    key, _, variant = rest.partition(" ")
    row = next((r for r in _claims(name) if r["claim"] == key), None)
    text = "" if row is None else row["other_variants"].get(variant, "") if kind == "variant" else row["ours"]
    if not text:
        raise ConfigError(f"findings: {name} has no number for {rest}")
    return str(text)


def _cells(name: str, where: str) -> Sequence[Compared]:
    r, rows = recipe(name), stored(name)
    size = largest(r, rows)
    found = beside(r, [row for row in rows if row["size"] == size])
    wanted = parse_cells(r, where)
    return [c for point, c in zip(r.points(r.shown), found.compared, strict=True) if matches(r.shown, point, wanted)]


def _claims(name: str) -> list[dict[str, Any]]:
    return [claim_row(recipe(name), d) for d in decisions(recipe(name))]


def _figure(name: str) -> str:
    r = recipe(name)
    kinds = [c.key.removesuffix("-0") for c in charts_of(r, stored(name))]
    return "\n".join(f"![{r.place}, {kind}](images/reproduce/{name}-{kind}.svg)\n" for kind in kinds)


def _claim(row: Mapping[str, Any]) -> str:
    """One line: the verdict, the paper's words, both numbers. The rule is in docs/claims.md."""
    told = [f"holds if {row['holds_if']}"]
    told += [] if row["own"] is None else [f"the paper's own table {row['own']:g}"]
    told += [f"ours {row['ours']}"] if row["ours"] else []
    rest = qualified(row).removeprefix(row["verdict"])
    return f"- **{row['verdict']}**{rest}: “{row['quote']}” ({row['claim']}: {', '.join(told)})"
