"""docs/reproduce.md and docs/claims.md, written from the recipes and from the results that the package carries."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

from offbeat.lab.papers.beside import beside
from offbeat.lab.papers.claims import claim_row, ledger, qualified
from offbeat.lab.papers.deciding import VERDICTS, decide, kept
from offbeat.lab.papers.expansion import reduced
from offbeat.lab.papers.landscapes import landscape_charts, stored_landscape
from offbeat.lab.papers.line_chart import line_charts
from offbeat.lab.papers.recipe import Recipe, names, recipe
from offbeat.lab.papers.showing import by_variant, charts, table
from offbeat.lab.papers.stored import Row, stored
from offbeat.report.draw.figure import Chart
from offbeat.report.numbers import seconds
from offbeat.report.tables import Table

_REPRODUCE = """# The papers, reproduced

Written by `offbeat reproduce --markdown` from the recipes and from the results of our own runs that the package carries
(`src/offbeat/recipes`); a test compares. No number here was typed in.

```
offbeat reproduce                                   # the list
offbeat reproduce lamour2023-table2                 # minutes: reduced, and says how
offbeat reproduce lamour2023-table2 --full          # the paper's own budget; goes on where it stopped
offbeat reproduce lamour2023-table2 --full --cell workers=5,delay=30ms
offbeat claims                                      # what becomes of what the papers say
```

In Python: `offbeat.reproduce("lamour2023-table2")`. It ends in a page with published and ours side by side, the
verdicts, and what differs from the paper. A dataset that is missing is one line that says how to get it. Interrupted,
the same command goes on; a run that fails is a cell, not the end. What becomes of each claim is in [claims](claims.md).
"""
_CLAIMS = """# What becomes of what the papers say

Written by `offbeat claims --markdown`; `offbeat claims --json` is [claims.json](claims.json), with the hashes of all
runs. A test compares. Rules, tolerances and numbers of seeds are in the recipes and were committed before the first
run; a verdict is computed:

- **reproduced**, **not reproduced**: the 95% interval of our statistic over the seeds lies inside, or outside, what
  was fixed;
- **undecided at this size**: it lies on the border, or there are fewer seeds than were fixed; with the number of seeds
  that would decide;
- **contradicted by the paper's own table**: the same statistic of the paper's own cells does not give what it says;
- **follows from the paper's own table**: it does, and the recipe has no runs of ours;
- **not run**: our cells are missing.

A verdict that was reached at less than the paper's own budget says so: it may be another one at the full size.
"""
_RECIPE = """
## A recipe

One TOML file in `src/offbeat/recipes` a table or figure:

| part | what it holds |
|---|---|
| `[base]` | the paper's set-up, with the keys of a run's configuration ([every setting](configuration.md)) |
| `clock = true` | nothing is trained; `[base]` has `cluster`, `solver`, `rounds`, `measure`, `size`, `batch` |
| `[axes.NAME]` | the values of an axis, each with the settings that it stands for |
| `read.metric`, `read.class`, `read.at` | of an axis's value: what is read of the run; of a class; at a share of it |
| `[variants.NAME]` | readings of what is ambiguous; the first is held against the paper, others may flip it |
| `[sizes.NAME]` | `quick` and `full`, and others: seeds, settings, cells and variants that are run |
| `grid` | of a size: points a side of the loss landscape that is drawn around its runs |
| `[lines]` | `along`: the axis along which the paper draws lines, and `log`: which of its axes are logarithmic |
| `[published]` | the paper's numbers, row by row; `"NC"` did not converge, `""` is illegible |
| `[[claims]]` | quote, place, the rule in words and as a statistic of cells, bounds, tolerance, number of seeds |
"""


def reproduce_page() -> str:
    """docs/reproduce.md."""
    return "\n".join(
        [_REPRODUCE, *(part for n in names() for part in _section(recipe(n), stored(n))), _RECIPE.strip(), ""]
    )


def save_figures(folder: Path) -> list[Path]:
    """The figures of docs/reproduce.md: published and ours, for each recipe of one panel that has results."""
    out = []
    for r, rows in ((recipe(n), stored(n)) for n in names()):
        for chart in charts_of(r, rows):
            (figure,) = chart.views.values()
            less = "" if chart.key == "published-0" else _less(r, rows)
            several = f"{figure.title}. " if chart.key.startswith("lines") and len(r.published.rows) > 1 else ""
            title = f"{several}Ours. Reduced: {less}" if less else figure.title
            figure = replace(figure, title=fill(title, 58))
            out.append(figure.save(folder / f"{r.name}-{chart.key.removesuffix('-0')}.svg", width=6.9))
    return out


def charts_of(r: Recipe, rows: Sequence[Row]) -> list[Chart]:
    """Lines where the paper draws lines, else heat maps of a table of one panel; then the landscape, if any."""
    size = largest(r, rows)
    if size is None:
        return []
    found = beside(r, [row for row in rows if row["size"] == size])
    around = stored_landscape(r.name)
    landscape = [] if around is None else landscape_charts(around)
    if r.lines is not None:
        return [*line_charts(r, r.lines, found), *landscape]
    if len(found.panels) > 1:
        return landscape
    return [*(c for c in charts(r, found) if c.key in ("published-0", "ours-0")), *landscape]


def _less(r: Recipe, rows: Sequence[Row]) -> str:
    """What was reduced, where results of the largest size are shown."""
    size = largest(r, rows)
    return reduced(r, size, len({row["seed"] for row in rows if row["size"] == size})) if size else ""


def largest(r: Recipe, rows: Sequence[Row]) -> str | None:
    """The largest size that has results."""
    return next((s for s in reversed(list(r.sizes)) if any(row["size"] == s for row in rows)), None)


def claims_page() -> str:
    """docs/claims.md."""
    rows = ledger()
    counts = Counter(row["verdict"] for row in rows)
    told = ", ".join(f"{counts[v]} {v}" for v in VERDICTS if counts[v])
    lines = [_CLAIMS, f"{len(rows)} claims: {told}.", ""]
    for name in dict.fromkeys(row["recipe"] for row in rows):
        mine = [row for row in rows if row["recipe"] == name]
        lines += [f"## {name}", "", _claims(mine).markdown()]
    return "\n".join(lines)


def _claims(rows: Sequence[dict[str, Any]]) -> Table:
    names = ["claim", "verdict", "rule", "holds if", "own table", "ours [95%]", "seeds"]
    told = []
    for r in rows:
        size = f", {r['size']}" if r["size"] not in ("", "full") else ""
        own = None if r["own"] is None else f"{r['own']:g}"
        quote = f"“{r['quote']}” ({r['place']})"
        told.append([quote, qualified(r), r["rule"], r["holds_if"], own, r["ours"] + size, str(r["seeds"])])
    return Table("claims", "Claims", names, told)


def _section(r: Recipe, rows: Sequence[Row]) -> Iterator[str]:
    yield f"## {r.name}\n"
    yield f"{r.paper}, {r.place}: {r.title}.\n"
    size = largest(r, rows)
    if size is None:
        yield "Not run here yet.\n" if r.runs else "The paper's numbers alone: this recipe has no runs of ours.\n"
        return
    mine = [row for row in rows if row["size"] == size]
    yield f"{_when(r, size, mine)}\n"
    found = table(r, beside(r, mine))
    yield f"{found.caption[0].upper()}{found.caption[1:]}.\n"
    yield found.markdown()
    for chart in charts_of(r, rows):
        kind = chart.key.removesuffix("-0")
        yield f"![{r.place}, {kind}](images/reproduce/{r.name}-{kind}.svg)\n"
    if (flips := by_variant(r, mine, [claim_row(r, decide(r, c, rows)) for c in r.claims])) and len(flips.columns) > 2:
        yield "What would flip it: each claim's number in every variant that was run.\n"
        yield flips.markdown()
        yield "\n".join(f"- {v}: {r.variants[v].about}" for v in flips.columns[1:]) + "\n"
    yield "What differs from the paper:\n"
    yield "\n".join(f"- {line}" for line in r.differs) + "\n"


def _when(r: Recipe, size: str, rows: Sequence[Row]) -> str:
    """What was run, when, with what, and how long it took."""
    less = _less(r, rows)
    days = sorted({str(row["ended"])[:10] for row in rows if row.get("ended")}) or ["on a day that was not recorded"]
    versions = sorted({f"offbeat {row.get('offbeat')}, torch {row['torch']}" for row in rows if row.get("torch")})
    cpus = sorted({str(row["cpu"]) for row in rows if row.get("cpu")})
    runs = {row["run"]: row["wall_seconds"] or 0.0 for row in rows}
    chosen = r.sizes[size]
    every = len(kept(r, size)) * len(chosen.variants or r.variants) * chosen.seeds
    return (
        f"Size {size}{f' ({less})' if less else ''}: {len(rows)} of {every} results, "
        f"{len(runs)} runs, {seconds(sum(runs.values()))} of wall time on a machine busy with other things, "
        f"{' to '.join(dict.fromkeys((days[0], days[-1])))}; {'; '.join(versions)}; {'; '.join(cpus)}."
    )
