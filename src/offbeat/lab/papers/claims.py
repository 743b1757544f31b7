"""The ledger of claims: one row each, with the rule that decides it, both numbers, and a verdict that is computed."""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from offbeat.lab.papers.deciding import NOT_REPRODUCED, REPRODUCED, UNDECIDED, Decision, Estimate, decide
from offbeat.lab.papers.expansion import reduced
from offbeat.lab.papers.recipe import Claim, Recipe, names, recipe
from offbeat.lab.papers.stored import stored


def ledger(recipes: Sequence[Recipe] | None = None) -> list[dict[str, Any]]:
    """All claims of all recipes, decided from the papers' tables and from the results that the package carries."""
    every = [recipe(n) for n in names()] if recipes is None else recipes
    return [claim_row(r, d) for r in every for d in decisions(r)]


def decisions(of: Recipe) -> list[Decision]:
    """The verdicts on the claims of one recipe, from stored results."""
    rows = stored(of.name)
    return [decide(of, claim, rows) for claim in of.claims]


def claim_row(of: Recipe, d: Decision) -> dict[str, Any]:
    """One claim, as people and programs read it. `own` is the paper's own table, `ours` are our runs."""
    claim = d.claim
    return {
        "recipe": of.name,
        "claim": claim.key,
        "quote": claim.quote,
        "place": f"{claim.place}; {of.place}",
        "rule": claim.rule,
        "holds_if": holds_if(claim),
        "own": None if d.own is None else round(d.own, 2),
        "ours": _interval(d.ours),
        "size": d.size if d.ours else "",
        "variant": d.variant if d.ours else "",
        "seeds": len(d.ours.values) if d.ours else 0,
        "seeds_fixed": claim.seeds,
        "seeds_needed": d.seeds_needed if d.verdict == UNDECIDED else None,
        "cells": d.cells,
        "other_variants": {v: _interval(e) for v, e in d.others.items()},
        "runs": list(d.runs),
        "note": claim.note,
        "verdict": d.verdict,
        "would_decide": would_decide(d),
        "reduced": reduced(of, d.size, len(d.ours.values)) if d.ours and d.size != "full" else "",
    }


def qualified(row: Mapping[str, Any]) -> str:
    """The verdict with what it waits for, or what it was reached at: less than the paper's own budget decides less."""
    if row["would_decide"]:
        return f"{row['verdict']} ({row['would_decide']})"
    decided = row["verdict"] in (REPRODUCED, NOT_REPRODUCED)
    return f"{row['verdict']} (size {row['size']}: {row['reduced']})" if decided and row["reduced"] else row["verdict"]


def holds_if(claim: Claim) -> str:
    """Where the statistic has to lie, with its tolerance."""
    low, high = claim.bounds()
    if isfinite(low) and isfinite(high):
        return f"{_number(low)} to {_number(high)}"
    return f"at least {_number(low)}" if isfinite(low) else f"at most {_number(high)}"


def would_decide(d: Decision) -> str:
    """What an undecided claim waits for, in words; empty where it is decided."""
    if d.verdict != UNDECIDED or d.ours is None:
        return ""
    if len(d.ours.values) < d.claim.seeds:
        return f"{len(d.ours.values)} of the {d.claim.seeds} seeds that were fixed"
    if d.seeds_needed is None:
        return "no number of seeds below a thousand would decide"
    return f"{d.seeds_needed} seeds would decide"


def listing() -> list[dict[str, Any]]:
    """The recipes, one row each: what `offbeat reproduce` shows without a name."""
    out = []
    for name in names():
        r = recipe(name)
        runs = len(r.points()) * len(r.variants) * r.sizes["full"].seeds if r.runs else 0
        out.append(
            {
                "name": name,
                "what": f"{r.place}: {r.title}",
                "cells": len(r.points()),
                "runs in full": runs or "none: the paper's numbers alone",
                "claims": len(r.claims),
                "data": ", ".join(r.data) or "-",
            }
        )
    return out


def _interval(found: Estimate | None) -> str:
    if found is None:
        return ""
    if not isfinite(found.half):
        return f"{_number(found.mean)} (one seed)"
    return f"{_number(found.mean)} [{_number(found.low)} to {_number(found.high)}]"


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:g}"
