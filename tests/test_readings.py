"""What is read of a run: a class's score, a metric on the way; several cells of one run, and its landscape."""

import json

import numpy as np
import pytest

import offbeat
from offbeat.core.errors import ConfigError
from offbeat.lab.papers import landscapes, reproducing
from offbeat.lab.papers.reading import Reading, reading_of
from offbeat.lab.papers.recipe import parse
from offbeat.report.figures.loss_surface import read

RECIPE = """
paper = "nobody2000"
place = "Table 0"
title = "Digits"
differs = ["everything"]

[base]
evaluate = { every = "0.5epochs", keep_best = false }
optimizer = { name = "sgd", lr = 0.05 }
record = { saves_per_epoch = 4 }
task = { name = "digits", model = "logistic", size = 8 }
budget = { epochs = 1.0 }
[base.solver]
name = "asgd"

[axes.workers]
2 = { "cluster.workers" = 2 }
4 = { "cluster.workers" = 4 }
[axes.number]
accuracy = {}
"recall of 3" = { "read.metric" = "recall", "read.class" = 3 }
"accuracy half-way" = { "read.metric" = "accuracy", "read.at" = 0.5 }

[variants.plain]
about = "as it stands"
[sizes.quick]
seeds = 1
grid = 3
set = { "data.global_batch" = 16 }
axes.workers.4 = { "data.global_batch" = 32 }
[sizes.full]
seeds = 3

[published]
rows = ["workers"]
columns = ["number"]
values = [["", "", ""], ["", "", ""]]
"""


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(reproducing, "recipe", lambda name: parse(name, RECIPE))
    return offbeat.reproduce("tiny", out=tmp_path, processes=1, progress=False)


def test_cells_that_differ_in_what_is_read_are_of_one_run(made):
    assert (len(made.cells), len(made.results)) == (2, 6)
    assert [c.config["data"]["global_batch"] for c in made.cells] == [16, 32]
    assert made.reduced == "data.global_batch 16, data.global_batch reduced cell by cell, 1 seed instead of 3"
    for workers, cell in zip(("2", "4"), made.cells, strict=True):
        run = offbeat.Run.load(cell.folder)
        mine = {row["number"]: row["value"] for row in made.results if row["workers"] == workers}
        confusion = np.array(run.evaluation["test"]["confusion"])
        assert mine["recall of 3"] == pytest.approx(100 * confusion[3, 3] / confusion[3].sum())
        assert mine["accuracy"] == pytest.approx(100 * confusion.trace() / confusion.sum())
        samples, accuracy = (run.metrics[n].to_pylist() for n in ("samples", "accuracy"))
        assert len(samples) >= 3
        half = 100 * np.interp(samples[-1] / 2, samples, accuracy)
        assert mine["accuracy half-way"] == pytest.approx(half)
        assert half != mine["accuracy"]


def test_the_landscape_of_its_runs_is_drawn_and_kept_without_where_they_were(made, tmp_path, monkeypatch):
    assert "The loss around the trajectories" in [s.title for s in made.report().sections]
    made.save(tmp_path / "kept" / "tiny.parquet")
    kept = tmp_path / "kept" / "tiny-landscape"
    assert "runs" not in json.loads((kept / "landscape.json").read_text())
    found = read(kept)
    assert [w.name for w in found.walks] == ["workers 2", "workers 4"]
    assert found.walks[0].colour != found.walks[1].colour
    assert found.loss.shape == (3, 3)
    saved = [float(w.loss[-1]) for w in found.walks]
    assert saved == pytest.approx([c.outcome["loss"] for c in made.cells], rel=1e-5), "a walk ends where the run did"
    made.cells[0].outcome = {**made.cells[0].outcome, "status": "diverged"}
    assert landscapes.landscape_of(made) is None, "there is none of runs that did not end well"


def test_what_cannot_be_read_is_one_line():
    assert reading_of("x", {"read.metric": "loss", "optimizer.lr": 1.0}) == Reading("loss")
    with pytest.raises(ConfigError, match=r"read\.at must be a share from 0 to 1, got 2"):
        reading_of("x", {"read.metric": "loss", "read.at": 2.0})
    with pytest.raises(ConfigError, match="recipe x: read: Object contains unknown field `klass`"):
        reading_of("x", {"read.metric": "recall", "read.klass": 3})
    with pytest.raises(ConfigError, match=r"read\.class is of the end of a run"):
        reading_of("x", {"read.metric": "recall", "read.class": 3, "read.at": 0.5})
