"""`offbeat reproduce` and `offbeat claims`: the papers' tables and figures, and what becomes of what they say."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from offbeat.cli.options import AddressOpt, AgainOpt, CpusOpt, DryOpt, JsonOpt, OnOpt, ProcessesOpt
from offbeat.cli.output import json_safe, print_dry_run, print_rows
from offbeat.cli.studies import run_study, say_interrupted
from offbeat.core.errors import ConfigError

if TYPE_CHECKING:
    from offbeat.lab.papers.reproducing import Reproduction
    from offbeat.report.pages.page import Page


def recipe_names(incomplete: str) -> list[str]:
    from offbeat.lab.papers.recipe import names

    return [n for n in names() if n.startswith(incomplete)]


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="a table or figure; without, they are listed", autocompletion=recipe_names)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="minutes; says what it leaves out (the default)")] = False,
    full: Annotated[bool, typer.Option("--full", help="the paper's own budget; may take days, and goes on")] = False,
    size: Annotated[str | None, typer.Option(help="another size that the recipe has")] = None,
    cell: Annotated[str, typer.Option(help="some cells alone: workers=5,delay=30ms")] = "",
    variant: Annotated[list[str] | None, typer.Option(help="one reading of the paper; may be repeated")] = None,
    seeds: Annotated[int | None, typer.Option(help="how many (default: those of the size)")] = None,
    out: Annotated[Path, typer.Option(help="folder for the runs and the pages")] = Path("reproductions"),
    table: Annotated[Path | None, typer.Option(help="also write the results as one small .parquet file")] = None,
    export: Annotated[
        Path | None, typer.Option(help="also a folder of figures (SVG) and tables (CSV, Markdown, LaTeX)")
    ] = None,
    collect: Annotated[bool, typer.Option("--collect", help="run nothing: show what is finished")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="print docs/reproduce.md, from stored results")] = False,
    images: Annotated[Path | None, typer.Option(help="a folder for the figures of --markdown")] = None,
    processes: ProcessesOpt = None,
    on: OnOpt = "here",
    address: AddressOpt = None,
    cpus: CpusOpt = None,
    again: AgainOpt = False,
    dry_run: DryOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """A table or figure of a paper, run and held against what was published. Without a name they are listed."""
    from offbeat.lab.papers.reproducing import plan
    from offbeat.lab.papers.stored import saved
    from offbeat.lab.studies.places import Where

    where = Where(on, processes, address, cpus)
    if sum((quick, full, size is not None)) > 1:
        raise ConfigError("give one of --quick, --full and --size")
    if markdown:
        from offbeat.lab.papers.pages import reproduce_page, save_figures

        if images is not None:
            save_figures(images)
        print(reproduce_page(), end="")
        return
    if name is None:
        _list(as_json)
        return
    chosen = ("full" if full else "quick") if size is None else size
    made = plan(name, size=chosen, cell=cell, variants=variant, seeds=seeds, out=out)
    if dry_run:
        print_dry_run(made.would_run(where), as_json)
        return
    if table is not None:
        saved(made.recipe, table)  # what cannot take the results is refused before there are any
    finished = True
    if collect:
        made.collect()
    elif made.cells:
        if made.reduced:
            print(f"{name}, {chosen}: {made.reduced}", file=sys.stderr)
        finished = run_study(made, name, where, again=again, quiet=as_json)
    _show(made, as_json)
    page = made.report()
    written = {"page": page.save(made.own_file("report.html"))}
    if export is not None:
        written["export"] = _export(page, export)
    if table is not None:
        written["table"] = made.save(table)
    for what, path in written.items():
        print(f"{what:8} {path}", file=sys.stderr if as_json else sys.stdout)
    for failure in made.failures:
        print(f"failed: {failure}", file=sys.stderr)
    say_interrupted(finished)


def _export(page: "Page", folder: Path) -> Path:
    from offbeat.report.export import figures_of, tables_of

    for save in (figures_of(page.charts, ("svg",), 6.9), tables_of(page.tables)):
        list(save(folder))
    return folder


def _list(as_json: bool) -> None:
    from offbeat.lab.papers.claims import listing

    rows = listing()
    if as_json:
        print(json.dumps(rows))
    else:
        print_rows(rows)


def _show(made: "Reproduction", as_json: bool) -> None:
    from offbeat import terminal
    from offbeat.lab.papers.claims import claim_row
    from offbeat.lab.papers.showing import table

    rows = [claim_row(made.recipe, d) for d in made.decisions]
    if as_json:
        print(json.dumps(json_safe({"results": made.results, "claims": rows})))
        return
    terminal.show_beside(terminal.console(), table(made.recipe, made.beside))
    for row in rows:
        terminal.show_claim(terminal.console(), row)


def claims(
    name: Annotated[
        str | None, typer.Argument(help="of one table or figure alone", autocompletion=recipe_names)
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="print docs/claims.md")] = False,
    findings: Annotated[bool, typer.Option("--findings", help="print docs/findings.md")] = False,
    as_json: JsonOpt = False,
) -> None:
    """What the papers say, claim by claim: the rule that decides it, ours, and a verdict that is computed."""
    from offbeat.lab.papers.claims import ledger
    from offbeat.lab.papers.recipe import recipe

    if findings:
        from offbeat.lab.papers.answers import findings_page

        print(findings_page(), end="")
        return
    rows = ledger([recipe(name)] if name else None)
    if markdown:
        from offbeat.lab.papers.pages import claims_page

        print(claims_page(), end="")
    elif as_json:
        print(json.dumps(json_safe(rows), indent=1))
    else:
        print_rows([{k: r[k] for k in ("recipe", "claim", "verdict", "own", "ours", "seeds")} for r in rows])
