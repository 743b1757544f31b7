"""A task of your own: the page's example as it stands, and datasets in the styles of torchvision and HuggingFace."""

import json
import os
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

import offbeat
from offbeat import cli
from offbeat.core.errors import ConfigError, DataError
from offbeat.data.samples import as_samples

PAGE = Path(__file__).parent.parent / "docs" / "tasks.md"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """The page's Python example as a file in an empty folder, where we are."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.S)
    (tmp_path / "mytask.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "mytask.py"
    sys.modules.pop("mytask", None)


def test_the_pages_example_runs_as_a_script(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    accuracy, recall = capsys.readouterr().out.split(maxsplit=1)
    assert float(accuracy) > 0.8
    assert len(json.loads(recall)) == 3
    (folder,) = (example.parent / "runs").iterdir()
    assert json.loads((folder / "partition.json").read_text())["partition"] == "dirichlet(0.5)"
    runpy.run_path(str(example), run_name="__main__")  # its fingerprint finds the folder again
    assert list((example.parent / "runs").iterdir()) == [folder]


def test_the_pages_example_runs_from_the_command_line(example, capsys, monkeypatch):
    (command,) = re.findall(r"^offbeat (run mytask:rings.*)$", PAGE.read_text(), flags=re.M)
    import shlex

    monkeypatch.setattr(sys, "argv", ["offbeat", *shlex.split(command), "--json"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    summary = json.loads(capsys.readouterr().out)
    assert (summary["status"], summary["workers"], summary["task"]) == ("done", 4, "mytask:rings")
    assert summary["accuracy"] > 0.8


def test_every_key_on_the_page_is_a_key(capsys):
    """What the page tells people to set exists."""
    from offbeat.lab.config import known_keys

    used = set(re.findall(r"\b((?:data|budget|evaluate|record)\.[a-z_]+)\b", PAGE.read_text()))
    assert used <= set(known_keys())
    assert {"data.partition", "data.validation", "data.folds", "data.fold", "data.sampling"} <= used


# Styles of datasets


class TorchvisionStyle:
    """`(PIL picture, int)` and `targets`, as torchvision.datasets have it."""

    def __init__(self, n: int = 40, *, with_targets: bool = True) -> None:
        rng = np.random.default_rng(0)
        self.data = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        self.answers = (np.arange(n) % 3).tolist()
        if with_targets:
            self.targets = self.answers

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int):
        return Image.fromarray(self.data[i]), self.answers[i]


class HuggingFaceStyle:
    """Rows are dicts, columns are lists, as datasets.Dataset has it."""

    column_names = ("pixels", "label")

    def __init__(self, n: int = 40) -> None:
        g = torch.Generator().manual_seed(0)
        self.columns = {"pixels": torch.randn(n, 5, generator=g).tolist(), "label": [i % 3 for i in range(n)]}

    def __len__(self) -> int:
        return len(self.columns["label"])

    def __getitem__(self, key):
        if isinstance(key, str):
            return self.columns[key]
        return {name: column[key] for name, column in self.columns.items()}


def test_a_torchvision_style_dataset_works_as_it_is(tmp_path):
    data = TorchvisionStyle()
    task = offbeat.task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 3)), F.cross_entropy, data, data)
    assert task.labels.tolist() == data.targets
    x, y = task._train.batch(np.array([3, 1]))
    torch.testing.assert_close(x, torch.from_numpy(data.data[[3, 1]])[:, None] / 255)
    assert y.tolist() == [0, 1]
    run = offbeat.train(task, "asgd", 3, budget="6updates", batch=4, partition="split-labels", out=tmp_path, pool=0)
    assert [sum(n > 0 for n in row) for row in run.partition["histograms"]] == [1, 1, 1]
    assert run.evaluation["test"]["samples"] == 40


def test_a_huggingface_style_dataset_works_as_it_is(tmp_path):
    data = HuggingFaceStyle()
    task = offbeat.task(lambda: nn.Linear(5, 3), F.cross_entropy, data, data)
    assert task.labels.tolist() == data.columns["label"]
    x, y = task._train.batch(np.array([7, 2]))
    torch.testing.assert_close(x, torch.tensor([data.columns["pixels"][i] for i in (7, 2)]))
    assert y.tolist() == [1, 2]
    run = offbeat.train(task, "asgd", 2, budget="6updates", batch=4, partition="dirichlet(5)", out=tmp_path, pool=0)
    assert run.status == "done"


def test_several_inputs_arrive_as_a_dict():
    rows = [{"a": torch.ones(2) * i, "b": torch.ones(3) * i, "labels": i % 2} for i in range(6)]
    x, y = as_samples(rows, "train").batch(np.array([4, 5]))
    assert {k: v[:, 0].tolist() for k, v in x.items()} == {"a": [4.0, 5.0], "b": [4.0, 5.0]}
    assert y.tolist() == [0, 1]


def test_tensors_and_map_style_give_the_same_run():
    x = torch.randn(30, 5, generator=torch.Generator().manual_seed(1))
    y = torch.arange(30) % 3
    torch.manual_seed(0)
    layer = nn.Linear(5, 3)
    runs = [
        offbeat.train(offbeat.task(layer, F.cross_entropy, data), "asgd", 2, budget="9updates", batch=4, out=False)
        for data in ((x, y), torch.utils.data.TensorDataset(x, y), [(x[i], int(y[i])) for i in range(30)])
    ]
    assert torch.equal(runs[0].params, runs[1].params)
    assert torch.equal(runs[0].params, runs[2].params)


X = torch.randn(30, 5, generator=torch.Generator().manual_seed(1))
Y = torch.arange(30) % 3


class Sum(nn.Module):
    """Two inputs, by position or by name."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, first, second):
        return self.one(first) + self.two(second)


class Bag(Sum):
    """The same, given as one dict."""

    def forward(self, inputs):
        return super().forward(inputs["first"], inputs["second"])


class AnyNames(Sum):
    def forward(self, **inputs):
        return super().forward(**inputs)


def trained(model: nn.Module, data: object, **more: object) -> torch.Tensor:
    task = offbeat.task(model, F.cross_entropy, data, data, **more)
    return offbeat.train(task, "asgd", 2, budget="9updates", batch=4, out=False, pool=0).params


def made(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind()


def rows() -> list[dict[str, object]]:
    return [{"second": 2 * X[i], "first": X[i], "labels": int(Y[i])} for i in range(30)]


def test_three_tensors_are_two_inputs_and_a_target_and_not_three_samples():
    data = torch.utils.data.TensorDataset(X, 2 * X, Y)
    samples = as_samples(data, "train")
    assert (len(samples), samples.labels.tolist()) == (30, Y.tolist())
    inputs, target = samples.batch(np.array([4, 5]))
    assert torch.equal(inputs[0], X[4:6])
    assert torch.equal(inputs[1], 2 * X[4:6])
    assert target.tolist() == [1, 2]
    whole = trained(made(Sum), data)
    assert torch.equal(trained(made(Sum), (X, 2 * X, Y)), whole)
    assert torch.equal(trained(made(Sum), rows()), whole), "a dict goes by name, whatever its order"
    assert torch.equal(trained(made(Bag), rows()), whole), "and as a dict where forward takes one"
    assert torch.equal(trained(made(AnyNames), rows()), whole)


def test_a_numpy_pair_and_a_list_are_a_pair_of_tensors():
    layer = made(lambda: nn.Linear(5, 3))
    whole = trained(layer, (X, Y))
    double = X.numpy().astype(np.float64)
    for data in ([X, Y], (X.numpy(), Y.numpy()), [double, Y.numpy()], (X, Y.numpy())):
        assert torch.equal(trained(layer, data), whole)
    assert as_samples((double, Y.numpy()), "train", torch.float64).batch(np.arange(2))[0].dtype == torch.float64


def test_a_collate_function_puts_the_batch_together():
    def pad(items):
        longest = max(len(words) for words, _ in items)
        padded = torch.stack([F.pad(words, (0, longest - len(words))) for words, _ in items])
        return padded.sum(1, keepdim=True), torch.tensor([label for _, label in items])

    uneven = [(torch.ones(1 + i % 4), i % 2) for i in range(30)]
    task = offbeat.task(lambda: nn.Linear(1, 2), F.cross_entropy, uneven, uneven, collate=pad)
    x, y = task._train.batch(np.array([3, 4]))
    assert (x.tolist(), y.tolist()) == ([[4.0], [1.0]], [1, 0])
    assert offbeat.train(task, "asgd", 2, budget="6updates", batch=4, out=False, pool=0).status == "done"

    def halved(items):
        return {"x": torch.stack([x for x, _ in items]) / 2, "labels": torch.stack([y for _, y in items])}

    samples = as_samples((X, Y), "train", collate=halved)
    assert samples.labels.tolist() == Y.tolist(), "what is known of the labels stays known"
    assert torch.equal(samples.batch(np.array([1, 2]))[0], X[1:3] / 2)


def test_a_collate_function_that_gives_something_else_is_told_what_it_should_give():
    samples = as_samples(
        [(X[i], 0) for i in range(4)], "train", collate=lambda items: torch.stack([x for x, _ in items])
    )
    with pytest.raises(DataError, match=r"collate must give \(inputs, target\) or a dict .*, got Tensor"):
        samples.batch(np.arange(2))
    with pytest.raises(ConfigError, match="collate must be a function of a list of samples, got 5"):
        offbeat.task(nn.Linear(5, 3), F.cross_entropy, (X, Y), collate=5)


@pytest.mark.parametrize(
    ("loss", "got"),
    [
        (lambda out, y: None, "NoneType"),
        (lambda out, y: (out - y) ** 2, r"a tensor of shape \(4, 1\)"),
        (lambda out, y: 0.5, "float"),
    ],
)
def test_a_loss_that_is_not_one_number_is_refused_in_one_line(loss, got):
    x = torch.ones(4, 1)
    task = offbeat.task(torch.nn.Linear(1, 1), loss, (x, x), (x, x))
    with pytest.raises(ConfigError, match=f"the loss must give a tensor with one number, the mean .*, got {got}"):
        offbeat.train(task, "asgd", 2, budget="2updates", batch=2, out=False)


def test_a_data_loader_is_told_to_hand_over_its_dataset():
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y))
    with pytest.raises(ConfigError, match=r"train must be .* got DataLoader: give its \.dataset"):
        as_samples(loader, "train")


def test_the_model_of_a_run_is_in_evaluation_mode_as_it_was_evaluated():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
    task = offbeat.task(net, F.cross_entropy, (X, Y), (X, Y))
    run = offbeat.train(task, "asgd", 2, budget="9updates", batch=4, out=False, pool=0)
    model = run.model()
    assert not any(m.training for m in model.modules())
    assert F.cross_entropy(model(X), Y).item() == pytest.approx(run.summary["loss"], rel=1e-6)


def test_parts_of_a_dataset_know_their_labels():
    x = torch.randn(30, 5, generator=torch.Generator().manual_seed(1))
    y = torch.arange(30) % 3
    for whole in (torch.utils.data.TensorDataset(x, y), TorchvisionStyle(30)):
        part, rest = torch.utils.data.random_split(whole, [20, 10], torch.Generator().manual_seed(2))
        samples = as_samples(part, "train")
        assert samples.labels.tolist() == y[part.indices].tolist()
        inputs, targets = samples.batch(np.array([3, 0]))
        assert targets.tolist() == [int(part[3][1]), int(part[0][1])]
        if isinstance(whole, torch.utils.data.TensorDataset):
            assert torch.equal(inputs, torch.stack([part[3][0], part[0][0]]))
        assert len(as_samples(rest, "test")) == 10


def test_labels_that_cannot_be_seen_are_asked_for_where_they_are_needed():
    data = TorchvisionStyle(with_targets=False)
    task = offbeat.task(lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 3)), F.cross_entropy, data)
    assert task.labels is None
    with pytest.raises(ConfigError, match=r"needs labels, .* an attribute 'targets' or a column 'label'"):
        offbeat.train(task, "asgd", 3, budget="6updates", batch=4, partition="split-labels", out=False)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (iter([1]), ConfigError, "train must be a pair of tensors or a map-style dataset"),
        ([], DataError, "the train set is empty"),
        (torch.utils.data.Subset([1, 2], []), DataError, "the train set is empty"),
        ((torch.zeros(3, 2), torch.zeros(4)), DataError, "3 inputs but 4 targets"),
        ([torch.zeros(3, 2), torch.zeros(4, 2), torch.zeros(3)], DataError, "4 inputs but 3 targets"),
        (torch.utils.data.TensorDataset(torch.zeros(3, 2)), DataError, "train has inputs but no target"),
        ((np.array(["a", "b"]), np.zeros(2)), DataError, "train .* numbers, got an array of <U1"),
        ([(torch.zeros(2), 0, 1)] * 4, DataError, "a sample must be (input, target) or a dict .* got 3 values"),
        ([{"x": 1, "answer": 2}] * 4, DataError, "got a dict with x, answer"),
        ([(torch.zeros(2), 0), (torch.zeros(3), 1)] * 2, DataError, "cannot be put together into a batch"),
        ([(object(), 0)] * 4, DataError, "cannot be put together into a batch"),
    ],
)
def test_a_dataset_that_is_not_one_is_refused_in_one_line(data, error, message):
    with pytest.raises(error, match=message.replace("(input, target)", r"\(input, target\)")) as caught:
        as_samples(data, "train").batch(np.arange(2))
    assert "\n" not in str(caught.value)


def test_a_factory_brings_its_own_defaults(tmp_path, monkeypatch):
    (tmp_path / "suited.py").write_text(
        "import torch\n"
        "def make(width=4):\n"
        "    x, y = torch.randn(20, 3), torch.arange(20) % 2\n"
        "    layer = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.Linear(width, 2))\n"
        "    return layer, torch.nn.functional.cross_entropy, (x, y)\n"
        "make.defaults = {'optimizer.lr': 0.7, 'optimizer.momentum': 0.5, 'data.batch': 5,\n"
        "                 'optimizer.multipliers': {'*.bias': {'lr': 2.0}}, 'budget.epochs': 2}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(os.getcwd())
    from offbeat.lab.config import make
    from offbeat.lab.runs.plan import build

    config = make({"task": {"name": "suited:make", "width": 6}})
    assert (config.optimizer.lr, config.batch, config.budget.epochs) == (0.7, 5, 2)
    assert config.optimizer.multipliers == {"*.bias": {"lr": 2.0}}
    assert build(config).task.layout.size == 3 * 6 + 6 + 6 * 2 + 2
    assert make({"task": "suited:make", "optimizer": "adam"}).optimizer.options == {}
