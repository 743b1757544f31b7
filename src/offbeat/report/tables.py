"""Tables, as CSV, Markdown and LaTeX."""

import csv
import io
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
        writer.writerow(self.columns)
        writer.writerows([["" if v is None else v for v in row] for row in self.rows])
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
        return bool(shown) and all(isinstance(v, int | float) or str(v)[:1] in "+-−0123456789" for v in shown)

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


def _md(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
