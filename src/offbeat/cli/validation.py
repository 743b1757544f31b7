"""`offbeat validate`: how far the simulator is from this machine."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from offbeat.cli.options import JsonOpt
from offbeat.core.legible import legible


def validate(
    seconds: Annotated[str, typer.Option(help="of each real run")] = "20s",
    repeats: Annotated[int, typer.Option(help="of each case, with seeds 0, 1, ...")] = 3,
    only: Annotated[str | None, typer.Option(help="cases with these words in their names: 'hogwild; MLP'")] = None,
    engine: Annotated[str, typer.Option(help="of the real runs: local or ray")] = "local",
    links: Annotated[
        bool, typer.Option("--links", help="on hosts with slow links between them instead (needs root, ip, tc, Ray)")
    ] = False,
    training: Annotated[bool, typer.Option(help="predict the time to a target, too (longer)")] = True,
    out: Annotated[Path, typer.Option(help="folder; runs that are there already are not run again")] = Path(
        "validation"
    ),
    markdown: Annotated[
        Path | None, typer.Option(metavar="JSON", help="run nothing: print the page of stored results")
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """Run a fixed set of configurations for real, fit a cluster to one half, and predict the other half.

    With the defaults it takes about an hour on two cores; nothing else should run meanwhile. With --links it is another
    set, on hosts in network namespaces; what it finds stands beside the rest in the same file.
    """
    from offbeat.lab.validation.validate import FILE, load, validate_links
    from offbeat.lab.validation.validate import validate as measure

    if markdown is not None:
        print(load(markdown), end="")
        return

    def say(line: str) -> None:
        print(legible(line), file=sys.stderr, flush=True)

    if links:
        found = validate_links(seconds=seconds, repeats=repeats, only=only, out=out, say=say)
    else:
        found = measure(seconds=seconds, repeats=repeats, only=only, engine=engine, training=training, out=out, say=say)
    if as_json:
        print((out / FILE).read_text(encoding="utf-8"), end="")
    else:
        print(found)
        print(f"written to {legible(out / FILE)}")
