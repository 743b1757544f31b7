"""Tables, as CSV, Markdown and LaTeX."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offbeat.report.numbers import number

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "µ": r"$\mu$",
    "×": r"$\times$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
_FORMULA = tuple("=+-@\t\r")
_NUMBER = re.compile(r"[+-]?\d[\d.,]*(e[+-]?\d+)?( ± [\d.]+(e[+-]?\d+)?)?( ?[%\w]{1,3})?")
FORMATS = ("csv", "md", "tex")


@dataclass(frozen=True)
class Table:
    """Columns with names, and rows of text or numbers. CSV keeps all digits; the others are for reading."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    caption: str = ""

    def csv(self) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([_inert(c) for c in self.columns])
        writer.writerows([["" if v is None else _inert(v) for v in row] for row in self.rows])
        return out.getvalue()

    def markdown(self) -> str:
        lines = [self._row(self.columns), self._row(["---:" if self.numeric(j) else "---" for j in self._indices])]
        return "\n".join([*lines, *(self._row([_md(cell(v)) for v in row]) for row in self.rows)]) + "\n"

    def latex(self) -> str:
        kinds = "".join("r" if self.numeric(j) else "l" for j in self._indices)
        lines = [rf"\begin{{tabular}}{{{kinds}}}", r"\hline", self._latex(self.columns), r"\hline"]
        lines += [self._latex([cell(v) for v in row]) for row in self.rows]
        return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"

    def text(self, form: str) -> str:
        return {"csv": self.csv, "md": self.markdown, "tex": self.latex}[form]()

    @property
    def _indices(self) -> range:
        return range(len(self.columns))

    def numeric(self, j: int) -> bool:
        """Whether a column holds numbers, perhaps with a unit or a spread: they are set to the right."""
        shown = [row[j] for row in self.rows if row[j] not in (None, "", "–")]
        return bool(shown) and all(isinstance(v, int | float) or str(v)[:1] in "+-−–0123456789" for v in shown)

    @staticmethod
    def _row(values: Sequence[Any]) -> str:
        return "| " + " | ".join(str(v) for v in values) + " |"

    @staticmethod
    def _latex(values: Sequence[Any]) -> str:
        return " & ".join("".join(_LATEX.get(c, c) for c in str(v)) for v in values) + r" \\"


def cell(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else str(value)


def _inert(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe before it; numbers stay what they are."""
    if isinstance(value, str) and value[:1] in _FORMULA and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _md(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
