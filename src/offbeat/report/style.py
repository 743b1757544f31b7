"""One look for every figure: colours safe for colour-blind readers, the same colour for the same solver everywhere."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

# Okabe and Ito, "Color universal design", 2008; black is for text.
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D1F", "#5D3A9B")

SOLVER_COLOURS: Mapping[str, str] = {
    "plain": "#6B7280",
    "sync": "#0072B2",
    "asgd": "#D55E00",
    "constant-delay": "#CC79A7",
}

TIME_COLOURS: Mapping[str, str] = {
    "computing": "#009E73",
    "delayed": "#E69F00",
    "communicating": "#56B4E9",
    "waiting": "#D1D5DB",
}

INK, FAINT, GRID = "#1F2937", "#6B7280", "#E5E7EB"


def solver_colour(name: str) -> str:
    """A known solver's own colour; any other name gets one that is always the same."""
    number = blake2b(name.encode(), digest_size=2).digest()
    return SOLVER_COLOURS.get(name, OKABE_ITO[int.from_bytes(number, "little") % len(OKABE_ITO)])


MATPLOTLIB: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "legend.frameon": False,
    "figure.dpi": 160,
    "svg.hashsalt": "offbeat",
}
