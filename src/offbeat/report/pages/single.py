"""The page of one run."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from offbeat.core.budget import Target
from offbeat.core.errors import ConfigError
from offbeat.core.trace import RECEIVED
from offbeat.folders.run_files import RunFiles
from offbeat.report.figures.classes import per_class
from offbeat.report.figures.gallery import FigureView, charts, figures_of_one
from offbeat.report.groups import group
from offbeat.report.numbers import number, percent, seconds
from offbeat.report.pages.page import Page, Section, Tile
from offbeat.report.read import flat
from offbeat.report.tables import Table, cell

MOST_INCIDENTS = 8
"""How many of them a page lists at its top."""


def page(run: RunFiles, *, title: str | None = None) -> Page:
    """Everything that the folder of one run tells."""
    (only,) = group([run])
    view = FigureView([only], target_of(run))
    sections = [
        _section("Learning", view),
        _section("Staleness", view, text=_about_staleness(run)),
        _section("Workers", view),
        _section("Classes and data", view, _tables(run)),
        how_to_repeat(run),
    ]
    return Page(
        title=title or f"{run.solver} on {run.task}",
        lead=[said(run)],
        tiles=tiles(run),
        warnings=warnings(run),
        sections=[s for s in sections if s.charts or s.tables or s.folded],
        foot=_foot(run),
        colours={run.solver: only.colour},
    )


def _section(title: str, view: FigureView, tables: Sequence[Table] = (), text: str = "") -> Section:
    return Section(title, charts(figures_of_one(), title, view), tables, text)


def _tables(run: RunFiles) -> list[Table]:
    table = per_class(run)
    return [] if table is None else [table]


def target_of(run: RunFiles) -> Target | None:
    """The target of the run's budget, where it has one that can be read."""
    text = run.summary.get("target") or run.config.get("budget", {}).get("until")
    try:
        return Target.parse(text) if text else None
    except ConfigError:
        return None


def said(run: RunFiles) -> str:
    """What was run and what came of it, in words."""
    s, c = run.summary, run.config
    about = run.info.task
    optimizer = c.get("optimizer", {})
    size = f" ({number(about['parameters'])} parameters)" if about.get("parameters") else ""
    text = f"{run.solver} trained {run.task}{size} with {_workers(run)}, batch {number(s.get('batch'))}"
    text += f", {optimizer.get('name', '?')} at learning rate {cell(optimizer.get('lr'))}, seed {run.seed}. "
    if not s:
        return text + f"It has not ended: {run.status}."
    ended = {"diverged": "It diverged", "interrupted": "It was interrupted"}.get(run.status, "It ended")
    text += f"{ended} after {number(s.get('updates'))} updates ({number(s.get('samples'))} samples"
    text += f", {s['epochs']:.3g} epochs" if s.get("epochs") else ""
    text += f") in {seconds(run.seconds)} of {run.clock} time"
    scores = []
    if s.get("accuracy") is not None:
        scores.append(f"held-out accuracy {s['accuracy']:.4g}")
    if s.get("loss") is not None:
        scores.append(f"loss {number(s['loss'])}")
    text += f", with {' and '.join(scores)}" if scores else ""
    if s.get("mean_staleness") is not None:
        text += f"; gradients were on average {s['mean_staleness']:.3g} updates stale"
    text += "."
    if s.get("target"):
        when = s.get("time_to_target")
        missed = "was not reached"
        text += f" The target {s['target']} " + (missed if when is None else f"was reached after {seconds(when)}") + "."
    return text


def _workers(run: RunFiles) -> str:
    return "1 worker" if run.workers == 1 else f"{run.workers} workers"


def _about_staleness(run: RunFiles) -> str:
    if run.trace().num_rows and pc.any(pc.equal(run.trace()["outcome"], RECEIVED)).as_py():
        return "How many gradients either the sender, when it computed, or the receiver had applied and the other not."
    return "How many updates the server made between a gradient's reading of the parameters and its own update."


def tiles(run: RunFiles) -> list[Tile]:
    s = run.summary
    out = []
    if s.get("accuracy") is not None:
        best = "" if s.get("best") is None else f"best {s['best']:.4f}"
        out.append(Tile("held-out accuracy", f"{s['accuracy']:.4f}", best))
    if s.get("loss") is not None:
        out.append(Tile("held-out loss", number(s["loss"])))
    if s.get("target"):
        out.append(Tile(f"{run.clock} time to {s['target']}", seconds(s.get("time_to_target"))))
    out.append(Tile(f"{run.clock} time", seconds(run.seconds), f"{number(s.get('updates'))} updates"))
    if s.get("mean_staleness") is not None:
        out.append(Tile("mean staleness", f"{s['mean_staleness']:.2f}", f"largest {s.get('max_staleness')}"))
    if s.get("idle_share") is not None:
        out.append(Tile("workers waited", percent(s["idle_share"]), f"computed {percent(s.get('computing_share'))}"))
    return out if s else []


def warnings(run: RunFiles) -> list[str]:
    out = []
    if run.status not in ("done", "running"):
        why = run.info.why or "no reason was recorded"
        out.append(f"{run.status.capitalize()}." if why == run.status else f"{run.status}: {why}.")
    if run.summary.get("stalled"):
        out.append("Stalled: the accuracy is no better than always naming the commonest class.")
    return [*out, *incidents(run)]


def incidents(run: RunFiles) -> list[str]:
    """What happened on the way: lost workers, a lost server, refused messages. Of many, the first ones."""
    found = [str(one) for one in run.summary.get("incidents") or ()]
    more = len(found) - MOST_INCIDENTS
    rest = [f"And {more} more: `offbeat show {run.place}` lists all of them."] if more > 0 else []
    return [f"{one[:1].upper()}{one[1:].rstrip('.')}." for one in found[:MOST_INCIDENTS]] + rest


def how_to_repeat(run: RunFiles) -> Section:
    """The whole configuration, what it ran on, and the commands."""
    versions = ", ".join(f"{k} {v}" for k, v in run.info.versions.items())
    if run.config.get("from") == "python":
        how = "This run was made by a Python script, of Python objects: run the script again."
    else:
        how = f"offbeat show {_quoted(run.place)} --toml > run.toml\noffbeat run run.toml --out again"
    how += f"\n\n# {versions}\n# same bits: sha256 of the final parameters {run.summary.get('params_sha256', '?')}"
    config = "\n".join(f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in flat(run.config).items())
    return Section("How to repeat it", folded=[("Commands", how), ("The full configuration", config)])


def _quoted(path: Any) -> str:
    import shlex

    return shlex.quote(str(path))


def _foot(run: RunFiles) -> str:
    when = run.info.ended or run.info.created or ""
    return f"{run.place} · {run.info.key or ''} · {when} · times are {run.clock}"
