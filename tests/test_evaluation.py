"""What is measured on held-out samples, by class, and what BatchNorm has to do with it."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import offbeat
from harness import mlp_task, points
from offbeat.core.errors import DataError
from offbeat.core.task import Point
from offbeat.tasks.scores import class_scores


def serial(function, items):
    return [function(i) for i in items]


def counted(truth, predicted, num_classes):
    """Precision, recall and F1 from their definitions, one class at a time."""
    out = []
    for c in range(num_classes):
        hits = sum(t == p == c for t, p in zip(truth, predicted, strict=True))
        named, real = sum(p == c for p in predicted), sum(t == c for t in truth)
        precision = hits / named if named else 0.0
        recall = hits / real if real else 0.0
        out.append((precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0, real))
    return [list(column) for column in zip(*out, strict=True)]


def test_scores_by_class_are_those_of_their_definitions():
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 4, 200), rng.integers(0, 5, 200)  # class 4 has no samples
    predicted[predicted == 2] = 0  # class 2 is never named
    got = class_scores(truth, predicted, 5, ["a", "b", "c", "d", "e"])
    precision, recall, f1, support = counted(truth.tolist(), predicted.tolist(), 5)
    assert got["precision"] == pytest.approx(precision)
    assert got["recall"] == pytest.approx(recall)
    assert got["f1"] == pytest.approx(f1)
    assert got["support"] == support
    for name, values in (("precision", precision), ("recall", recall), ("f1", f1)):
        assert got[f"mean_{name}"] == pytest.approx(np.mean(values[:4]))  # over the classes that have samples
    confusion = np.array(got["confusion"])
    assert confusion.sum() == 200
    assert np.trace(confusion) / 200 == got["accuracy"]
    assert confusion[1, 3] == sum((truth == 1) & (predicted == 3))
    assert got["classes"] == ["a", "b", "c", "d", "e"]


def test_a_finished_run_leaves_scores_that_agree_with_its_last_metrics(tmp_path):
    run = offbeat.train(mlp_task(), "asgd", 3, budget="40updates", batch=8, out=tmp_path, pool=0)
    scores = json.loads((tmp_path / "evaluation.json").read_text())["test"]
    last = run.metrics.to_pylist()[-1]
    assert scores["accuracy"] == pytest.approx(last["accuracy"])
    assert scores["loss"] == pytest.approx(last["loss"])
    x, y = points(60, 1)
    predicted = run.model().eval()(x).argmax(1)
    assert scores["confusion"] == [[int(((y == i) & (predicted == j)).sum()) for j in range(4)] for i in range(4)]


def test_a_diverged_run_has_scores_too_and_valid_json(tmp_path):
    solver = offbeat.solver("asgd", lr=1e30)
    run = offbeat.train(mlp_task(), solver, 2, budget="40updates", batch=8, out=tmp_path, pool=0)
    assert run.status == "diverged"
    text = (tmp_path / "evaluation.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads(text)["test"]["loss"] is None


def test_evaluation_is_in_evaluation_mode_and_changes_nothing():
    """Dropout off, BatchNorm on its running statistics: the same numbers twice, and the buffers untouched."""
    task = mlp_task(lambda: nn.Dropout(0.5), norm=True)
    point = task.init(0)
    before = {n: b.clone() for n, b in point.buffers.items()}
    first, second = task.evaluate(point, serial), task.evaluate(point, serial)
    assert first == second
    assert all(torch.equal(before[n], b) for n, b in point.buffers.items())
    x, y = points(60, 1)
    with torch.no_grad():
        assert first["loss"] == pytest.approx(float(F.cross_entropy(task.module(point).eval()(x), y)))


def test_the_batchnorm_statistics_that_count_are_those_of_the_point():
    task = mlp_task(norm=True)
    point = task.init(0)
    shifted = Point(point.x, {n: b + 3 if n.endswith("running_mean") else b for n, b in point.buffers.items()})
    assert task.evaluate(shifted, serial)["loss"] != task.evaluate(point, serial)["loss"]
    x, y = points(60, 1)
    module = task.module(shifted).eval()
    with torch.no_grad():
        assert task.evaluate(shifted, serial)["loss"] == pytest.approx(float(F.cross_entropy(module(x), y)))


def test_evaluation_in_chunks_is_evaluation_of_the_whole(monkeypatch):
    task = mlp_task()
    whole = task.evaluate(task.init(0), serial)
    monkeypatch.setattr("offbeat.tasks.module._EVALUATED_AT_ONCE", 7)
    parts = task.evaluate(task.init(0), serial)
    assert parts["loss"] == pytest.approx(whole["loss"])
    assert parts["accuracy"] == whole["accuracy"]


# Bad input


def test_labels_that_the_model_has_no_output_for_are_named():
    x, y = points(60)
    for label, allowed in ((4, "from 0 to 3"), (-1, "from 0 to 3")):
        wrong = torch.where(torch.arange(60) == 59, label, y)  # in the last sample, not in the first batch
        task = mlp_task(train=(x, wrong))
        with pytest.raises(DataError, match=f"label {label} of the train set .* is out of range: .* {allowed}"):
            task.gradient(task.init(0), np.arange(4), 0)


def test_a_run_with_labels_out_of_range_leaves_nothing_behind(tmp_path):
    x, y = points(60)
    task = mlp_task(train=(x, y + 1))
    with pytest.raises(DataError, match="label 4 of the train set") as caught:
        offbeat.train(task, "asgd", 2, budget="5updates", batch=4, out=tmp_path / "run", pool=0)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_test_labels_out_of_range_are_named_too():
    task = offbeat.task(lambda: nn.Linear(12, 4), F.cross_entropy, points(20), (points(9)[0], torch.full((9,), 7)))
    with pytest.raises(DataError, match="label 7 of the test set"):
        task.evaluate(task.init(0), serial)


def test_a_dataset_with_one_class_is_refused():
    x, _ = points(20)
    with pytest.raises(DataError, match="all 20 training samples of task 'custom' have the label 2") as caught:
        mlp_task(train=(x, torch.full((20,), 2)))
    assert "\n" not in str(caught.value)


def test_labels_that_torch_ignores_are_allowed():
    x, y = points(20)
    y[3] = -100
    task = mlp_task(train=(x, y))
    assert np.isfinite(task.gradient(task.init(0), np.arange(20), 0).loss)


def test_regression_has_no_classes(tmp_path):
    x, _ = points(40)
    data = (x, x.sum(1, keepdim=True))
    task = offbeat.task(lambda: nn.Linear(12, 1), F.mse_loss, data, data)
    run = offbeat.train(task, "asgd", 2, budget="5updates", batch=4, out=tmp_path, pool=0)
    assert run.metrics.to_pylist()[-1]["accuracy"] is None
    assert set(json.loads((tmp_path / "evaluation.json").read_text())["test"]) == {"loss", "samples"}
