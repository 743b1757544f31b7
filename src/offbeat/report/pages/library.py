"""The scripts of a page: the library that draws (plotly.js), packed to a third of its size, and the page's own code."""

import base64
import gzip
import re
from functools import cache
from html import escape
from importlib.resources import files
from typing import Literal

from offbeat.core.errors import ConfigError

FLAT = "plotly-cartesian-4.1.1.min.js"
"""plotly.js-cartesian-dist-min as published (MIT; its licence lies beside it): bars, lines, heat maps, contours."""

Kind = Literal["flat", "spatial"]
"""What a page draws: figures on a plane, or in space as well."""


def scripts(kind: Kind, *, brought: bool = True) -> str:
    """What starts a page; in a notebook, the library is not `brought` again but taken from an earlier page."""
    code = f'<script type="text/plain" id="code">{asset("page.js")}</script>'
    return f'{_packed(kind) if brought else ""}{code}<script data-kind="{kind}">{asset("start.js")}</script>'


def asset(name: str) -> str:
    return files("offbeat.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _packed(kind: Kind) -> str:
    """The library, packed, behind its own note of whose it is, for those who look at the file."""
    library = asset(FLAT) if kind == "flat" else _whole_library()
    banner = re.match(r"/\*\*(.*?)\*/", library, re.DOTALL)
    note = "" if banner is None else escape(" ".join(banner[1].replace("*", " ").split()).replace("--", "-"))
    packed = base64.b64encode(gzip.compress(library.encode(), mtime=0)).decode()
    return f'<!-- {note} --><script type="text/plain" id="library">{packed}</script>'


def _whole_library() -> str:
    """All of plotly.js, which comes with the Python package."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise ConfigError("surfaces need plotly: pip install 'offbeat[figures]'") from None
    code: str = get_plotlyjs()
    return code
