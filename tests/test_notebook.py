"""A real kernel: the notebook of examples/ from its top to its bottom, what it shows, and Ctrl-C in the middle."""

import json
import re
from pathlib import Path

import nbclient
import nbformat
import pytest

import browser

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parent.parent / "examples" / "out_of_step.ipynb"


class Client(nbclient.NotebookClient):
    """A notebook and its kernel; `told` is what was shown on the way, `interrupt_at` a share of progress to stop at."""

    def __init__(self, notebook, folder: Path, interrupt_at: float = 2.0) -> None:
        place = {"metadata": {"path": str(folder)}}
        super().__init__(notebook, timeout=500, kernel_name="python3", resources=place, startup_timeout=300)
        self.told: list[str] = []
        self._interrupt_at = interrupt_at

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] in ("display_data", "update_display_data"):
            shown = msg["content"]["data"].get("text/html", "")
            self.told.append(shown)
            share = re.search(r'<progress value="([\d.]+)"', shown)
            if share and float(share[1]) >= self._interrupt_at:
                self._interrupt_at = 2.0
                nbclient.client.run_sync(self.km.interrupt_kernel)()
        return super().process_message(msg, cell, cell_index)


def notebook(*cells: str):
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def html_of(cell) -> str:
    """What stays below a cell, as a browser gets it."""
    return "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)


@pytest.fixture(scope="module")
def gone_through(tmp_path_factory):
    """The example after all of its cells; a cell that fails raises."""
    made = nbformat.read(EXAMPLE, as_version=4)
    client = Client(made, tmp_path_factory.mktemp("lesson"))
    client.execute()
    return client, {"".join(c.source).splitlines()[-1]: c for c in made.cells if c.cell_type == "code"}


def test_the_example_is_small_and_kept_without_what_it_shows():
    text = EXAMPLE.read_text(encoding="utf-8")
    assert len(text) < 20_000
    assert all(not cell.get("outputs") for cell in json.loads(text)["cells"])


def test_every_cell_shows_what_it_should_and_progress_is_gone_at_the_end(gone_through):
    client, cells = gone_through
    run, found, swept = (html_of(cells[name]) for name in ("run", "found", "swept"))
    assert run.count("<polyline") == 1
    assert "asgd on digits" in run
    assert len(run) < 3000
    assert re.search(r"level|needs [\d.]+ times as long|No winner|has the best mean", found), found
    assert all(name in found for name in ("sync", "asgd", "Shy"))
    assert "6 cells: 6 done" in swept
    assert "<progress" not in run + found + swept
    progress = [shown for shown in client.told if "<progress" in shown]
    assert any("samples/s" in shown for shown in progress)
    assert any("/9 runs" in shown and "left" in shown for shown in progress)
    assert any(output.get("data", {}).get("image/png") for output in cells["found.plot()"].outputs)


def pages_of(cells) -> list[str]:
    return [html for html in map(html_of, cells.values()) if "<iframe" in html]


def test_the_library_that_draws_comes_once(gone_through):
    pages = pages_of(gone_through[1])
    assert len(pages) == 2
    assert ["plotly.js" in page for page in pages] == [True, False]
    assert len(pages[1]) < 300_000


def test_both_pages_are_drawn_in_a_browser(gone_through, tmp_path):
    browser.require()
    path = tmp_path / "cells.html"
    cells = "".join(map(html_of, gone_through[1].values()))
    path.write_text(f"<!doctype html><html data-ready=true><body style='color:#eee'>{cells}</body></html>")
    with browser.tab() as tab:
        tab.size(1200, 900)
        tab.open(path)
        frames = "[...document.querySelectorAll('iframe')].map(f => f.contentDocument.documentElement)"
        tab.wait(f"{frames}.every(d => d.dataset.ready === 'true')")
        assert tab.errors == []
        assert tab.run(f"{frames}.map(d => d.querySelectorAll('.trouble').length)") == [0, 0]
        assert tab.run(f"{frames}.map(d => d.dataset.theme)") == ["dark", "dark"], "as the notebook around them"


def test_an_interrupted_run_is_saved_and_the_same_cell_goes_on_to_the_same_bits(tmp_path):
    words = "'digits', 'asgd', 4, budget='8epochs', batch=8, lr=0.03"
    made = notebook(f"import offbeat; run = offbeat.train({words})")
    with pytest.raises(
        nbclient.exceptions.CellExecutionError, match=r"KeyboardInterrupt.*: interrupted; runs/\w+ is saved"
    ):
        Client(made, tmp_path, interrupt_at=0.2).execute()
    say = "print(run.status, run.summary['updates'], run.summary['params_sha256'])"
    whole = f"run = offbeat.train({words}, out=False, progress=False)"
    made = notebook(f"import offbeat; run = offbeat.train({words}); {say}", f"{whole}; {say}")
    client = Client(made, tmp_path)
    client.execute()
    resumed, never_interrupted = (cell.outputs[-1]["text"] for cell in made.cells)
    assert resumed == never_interrupted
    assert resumed.startswith("done ")
    first = next(shown for shown in client.told if "<progress" in shown)
    assert float(re.search(r'value="([\d.]+)"', first)[1]) > 0.1, "it went on, and did not begin anew"
