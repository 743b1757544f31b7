"""One look for every figure: colours safe for colour-blind readers, the same colour for the same solver everywhere.

A figure names a colour by a token such as "@asgd" or "@faint"; the page turns it into the colour of the theme it shows,
light or dark, and the printed figure into the light one.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from math import lcm
from typing import Any, Literal

Theme = Literal["light", "dark"]

# Okabe and Ito, "Color universal design", 2008; black is for text. Light theme, dark theme.
OKABE_ITO: tuple[tuple[str, str], ...] = (
    ("#0072B2", "#3D9BD8"),
    ("#D55E00", "#F0803C"),
    ("#009E73", "#2CBF94"),
    ("#CC79A7", "#DE94BB"),
    ("#D18F00", "#EBB035"),
    ("#3AA0DB", "#7CC8F2"),
    ("#8C6D1F", "#BC9A45"),
    ("#6F4BAF", "#A78BE0"),
)

SOLVER_COLOURS: Mapping[str, tuple[str, str]] = {
    "plain": ("#6B7280", "#A3ABB8"),
    "sync": OKABE_ITO[0],
    "asgd": OKABE_ITO[1],
    "constant-delay": OKABE_ITO[3],
    "easgd": OKABE_ITO[2],
    "hogwild": OKABE_ITO[4],
    "dc-asgd": OKABE_ITO[7],
    "ssp": OKABE_ITO[4],
    "local-sgd": OKABE_ITO[6],
    "backup": OKABE_ITO[5],
    "dana-slim": OKABE_ITO[3],
}

ROLES: Mapping[str, tuple[str, str]] = {
    "ink": ("#1F2937", "#E5E7EB"),
    "faint": ("#6B7280", "#98A1AE"),
    "grid": ("#E8EAEE", "#2B3038"),
    "paper": ("#FFFFFF", "#16191E"),
    "computing": ("#009E73", "#2CBF94"),
    "delayed": ("#E69F00", "#EBB035"),
    "communicating": ("#56B4E9", "#7CC8F2"),
    "waiting": ("#D1D5DB", "#454C57"),
    "bad": ("#B42318", "#F97066"),
    "train": ("#8A94A3", "#8A94A3"),
}

# Perceptually even, and readable by everybody: viridis, and blue - white - orange for differences.
VIRIDIS = ("#440154", "#472D7B", "#3B528B", "#2C728E", "#21918C", "#28AE80", "#5EC962", "#ADDC30", "#FDE725")
DIVERGING = ("#0B4F7E", "#3F8FC4", "#A5CBE3", "#F4F4F2", "#F6BE94", "#E07B33", "#9A3F00")

DASHES = ("solid", "dash", "dot", "dashdot")

_TOKEN = re.compile(r"@([^/]+)(?:/([\d.]+))?")


def solver_colour(name: str) -> str:
    """The token of a solver's colour: a known solver has its own, any other name one that is always the same."""
    if name in SOLVER_COLOURS:
        return f"@{name}"
    number = blake2b(name.encode(), digest_size=2).digest()
    return f"@c{int.from_bytes(number, 'little') % len(OKABE_ITO)}"


def solver_colours(names: Iterable[str]) -> dict[str, str]:
    """The tokens of several solvers in one picture: where two would have one colour, the later takes a free one."""
    found: dict[str, str] = {}
    free = [f"@c{i}" for i in range(len(OKABE_ITO))]
    for name in sorted(dict.fromkeys(names), key=lambda n: n not in SOLVER_COLOURS):  # those with their own first
        taken = {colour(token) for token in found.values()}
        others = (token for token in free if colour(token) not in taken)
        own = solver_colour(name)
        found[name] = own if colour(own) not in taken else next(others, own)
    return found


def variants(solver: str, count: int, *, alone: bool, own: str | None = None) -> list[tuple[str, str]]:
    """A colour and a dash for each of so many groups of one solver; the first colour is the solver's own.

    The solver alone in a picture takes other hues as well; among other solvers it stays in its own, darker and lighter.
    """
    own = own or solver_colour(solver)
    if alone:
        others = (f"@c{i}" for i in range(len(OKABE_ITO)))
        colours = [own, *(c for c in others if colour(c) != colour(own))]
    else:
        colours = [own, f"{own}.deep", f"{own}.pale"]
    # Neighbours differ in both; when all pairs that come in turn are used up, the dashes move on by one.
    turn = lcm(len(colours), len(DASHES))
    return [(colours[k % len(colours)], DASHES[(k + k // turn) % len(DASHES)]) for k in range(count)]


def faded(token: str, alpha: float) -> str:
    """The same colour, so much of its opacity: what is faded already fades further."""
    name, _, before = token.partition("/")
    return f"{name}/{float(before or 1) * alpha:.3g}"


def palette(theme: Theme) -> dict[str, str]:
    """Every token of a theme: a deep and a pale shade of each solver's colour besides."""
    at = 0 if theme == "light" else 1
    colours = {f"c{i}": pair for i, pair in enumerate(OKABE_ITO)}
    pairs = {**colours, **SOLVER_COLOURS}
    out = {name: pair[at] for name, pair in {**pairs, **ROLES}.items()}
    for name in pairs:
        out |= {f"{name}.deep": _mixed(out[name], 0, 0.4), f"{name}.pale": _mixed(out[name], 255, 0.4)}
    return out


def _mixed(code: str, grey: int, share: float) -> str:
    """A colour with a share of a grey in it."""
    parts = [int(code[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + share * (grey - p)):02X}" for p in parts)


def colour(token: str, theme: Theme = "light") -> str:
    """The hexadecimal colour of a token, with two more digits where it is translucent ("@asgd/0.2")."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        return token
    name, alpha = found.groups()
    opacity = "" if alpha is None else f"{round(float(alpha) * 255):02X}"
    return palette(theme)[name] + opacity


MATPLOTLIB: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.edgecolor": colour("@faint"),
    "axes.labelcolor": colour("@ink"),
    "axes.titlecolor": colour("@ink"),
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": colour("@grid"),
    "grid.linewidth": 0.8,
    "xtick.color": colour("@faint"),
    "ytick.color": colour("@faint"),
    "legend.frameon": False,
    "figure.dpi": 160,
    "svg.hashsalt": "offbeat",
    "svg.fonttype": "none",
}
