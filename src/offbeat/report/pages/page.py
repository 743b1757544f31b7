"""The page: one HTML file that needs nothing else. Everything a user named is escaped here."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from offbeat.core.errors import StoreError
from offbeat.report.draw import style
from offbeat.report.draw.as_plotly import spec
from offbeat.report.draw.figure import Chart, Path3, Surface
from offbeat.report.pages.library import Kind, asset, scripts
from offbeat.report.tables import Table, cell

_CARRIED: set[Kind] = set()
"""Which libraries a page of this process has brought to the notebook."""


@dataclass(frozen=True)
class Tile:
    """A number worth a look of its own."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Section:
    title: str
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    text: str = ""
    folded: Sequence[tuple[str, str]] = ()
    """Pairs of a summary and a text shown as it is."""


@dataclass(frozen=True)
class Page:
    """A report. `save` writes it; in a notebook it shows itself in a frame."""

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]
    tiles: Sequence[Tile] = ()
    verdict: Sequence[str] = ()
    warnings: Sequence[str] = ()
    foot: str = ""
    colours: dict[str, str] = field(default_factory=dict)
    """Colour tokens by name; a table cell of that name gets a dot."""

    @property
    def charts(self) -> list[Chart]:
        return [c for s in self.sections for c in s.charts]

    @property
    def tables(self) -> list[Table]:
        return [t for s in self.sections for t in s.tables]

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.html(), encoding="utf-8")
        except OSError as e:
            raise StoreError(f"cannot write {path}: {e.strerror}") from None
        return path

    def html(self) -> str:
        return "".join(self._parts(scripts(self._kind)))

    def _repr_html_(self) -> str:
        """In a notebook the library that draws comes with the first page, and the others take it from there."""
        page = "".join(self._parts(scripts(self._kind, brought=self._kind not in _CARRIED)))
        _CARRIED.add(self._kind)
        return f'<iframe srcdoc="{escape(page)}" style="width:100%;height:720px;border:0"></iframe>'

    def _parts(self, code: str) -> Iterator[str]:
        links = "".join(f'<a href="#s{i}">{escape(s.title)}</a>' for i, s in enumerate(self.sections) if s.title)
        yield "<!doctype html>\n"
        yield '<html lang="en"><head><meta charset="utf-8">'
        yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
        yield f"<title>{escape(self.title)}</title>"
        yield '<link rel="icon" href="data:,">'  # no request for an icon
        yield f"<style>{asset('page.css')}</style></head><body>"
        yield f'<div class="top"><b>offbeat</b><nav>{links}</nav><button id="theme" type="button">Dark</button></div>'
        yield f"<main><h1>{escape(self.title)}</h1>"
        yield from (f'<p class="lead">{escape(p)}</p>' for p in self.lead)
        if self.verdict:
            yield '<div class="verdict">' + "".join(f"<p>{escape(p)}</p>" for p in self.verdict) + "</div>"
        yield from (f'<p class="note">{escape(p)}</p>' for p in self.warnings)
        if self.tiles:
            yield '<div class="tiles">' + "".join(map(_tile, self.tiles)) + "</div>"
        for i, section in enumerate(self.sections):
            yield from self._section(i, section)
        yield f"<footer>{escape(self.foot)}</footer></main>"
        yield f'<script type="application/json" id="figures">{self._data()}</script>'
        yield f"{code}</body></html>\n"

    def _section(self, i: int, section: Section) -> Iterator[str]:
        yield f'<section id="s{i}">'
        if section.title:
            yield f"<h2>{escape(section.title)}</h2>"
        if section.text:
            yield f"<p>{escape(section.text)}</p>"
        if section.charts:
            yield '<div class="grid">' + "".join(map(_figure, section.charts)) + "</div>"
        for table in section.tables:
            yield from self._table(table, "" if table.title == section.title else table.title)
        for summary, text in section.folded:
            yield f"<details><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"
        yield "</section>"

    def _table(self, table: Table, title: str) -> Iterator[str]:
        numeric = [' class="n"' if table.numeric(j) else "" for j in range(len(table.columns))]
        head = "".join(f"<th{n}>{escape(c)}</th>" for c, n in zip(table.columns, numeric, strict=True))
        yield f'<figure class="wide"><header><h3>{escape(title)}</h3>{_tools(table)}</header>'
        yield f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>'
        for row in table.rows:
            cells = (f"<td{n}>{self._dot(v)}{escape(cell(v))}</td>" for v, n in zip(row, numeric, strict=True))
            yield "<tr>" + "".join(cells) + "</tr>"
        yield "</tbody></table></div>"
        yield f"<figcaption>{escape(table.caption)}</figcaption></figure>" if table.caption else "</figure>"

    def _dot(self, value: object) -> str:
        token = self.colours.get(value) if isinstance(value, str) else None
        if token is None:
            return ""
        # light-dark() follows color-scheme, which follows the theme.
        light, dark = (style.colour(token, theme) for theme in ("light", "dark"))
        return f'<i class="dot" style="background:light-dark({light},{dark})"></i>'

    @property
    def _kind(self) -> Kind:
        marks = (m for c in self.charts for f in c.views.values() for m in f.marks)
        return "spatial" if any(isinstance(m, Surface | Path3) for m in marks) else "flat"

    def _data(self) -> str:
        charts = {c.key: {"views": {label: spec(f) for label, f in c.views.items()}} for c in self.charts}
        if len(charts) != len(self.charts):
            raise ValueError("two charts of a page have one key")
        tables = {t.key: {form: t.text(form) for form in ("csv", "md", "tex")} for t in self.tables}
        palettes = {theme: style.palette(theme) for theme in ("light", "dark")}
        text = json.dumps({"charts": charts, "tables": tables, "palettes": palettes}, separators=(",", ":"))
        # Inside <script> nothing may look like markup.
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _tile(tile: Tile) -> str:
    note = f"<small>{escape(tile.note)}</small>" if tile.note else ""
    return f'<div class="tile"><span>{escape(tile.name)}</span><b>{escape(tile.value)}</b>{note}</div>'


def _figure(chart: Chart) -> str:
    key = escape(chart.key)
    views = [escape(v) for v in chart.views]
    buttons = "".join(
        f'<button type="button" data-view="{v}" aria-pressed="{str(i == 0).lower()}">{v}</button>'
        for i, v in enumerate(views)
    )
    switch = f'<span class="switch views">{buttons}</span>' if len(views) > 1 else ""
    if any("y" in f.switches for f in chart.views.values()):
        switch += '<span class="switch"><button type="button" class="log" aria-pressed="false">log</button></span>'
    height = max(f.height for f in chart.views.values())
    return (
        f'<figure data-chart="{key}"{" class=wide" if chart.wide else ""}>'
        f"<header><h3>{escape(chart.title)}</h3>{switch}</header>"
        f'<div class="plot" id="plot-{key}" style="height:{height}px"></div>'
        f"<figcaption>{escape(chart.caption)}</figcaption></figure>"
    )


def _tools(table: Table) -> str:
    forms = {"csv": "CSV", "md": "Markdown", "tex": "LaTeX"}
    buttons = (
        f'<button type="button" data-table="{escape(table.key)}" data-form="{form}">{name}</button>'
        for form, name in forms.items()
    )
    return f'<span class="tools">{"".join(buttons)}</span>'
