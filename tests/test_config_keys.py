"""`offbeat config`: every key is explained, and every example works."""

import json
import tomllib
from pathlib import Path

import pytest

from offbeat.lab.config import known_keys, make, parse_setting
from offbeat.lab.config.meaning import MEANING, keys

WITH = {
    "data.first_batch": {"data.batch_warmup": "2epochs"},
    "data.batch_warmup": {"data.first_batch": 8},
    "data.fold": {"data.folds": 5},
    "cluster.events": {"cluster.workers": 5},
    "cluster.server.sharing": {"cluster.server.bandwidth": "10Gbps"},
    "cluster.server.shards": {"cluster.server.bandwidth": "10Gbps"},
    "cluster.cores_for": {"cluster.cores": 2},
    "cluster.slice": {"cluster.cores": 2},
    "cluster.racks": {"cluster.nodes": 4},
    "cluster.link.inside": {"cluster.nodes": 2},
    "cluster.link.between": {"cluster.nodes": 2},
    "cluster.link.racks": {"cluster.nodes": 4, "cluster.racks": 2},
    "local.start": {"engine": "local", "cluster.workers": 8},
    "local.floor": {"engine": "local", "cluster.workers": 8},
    "schedule.power": {"schedule.kind": "polynomial"},
    "schedule.over": {"schedule.kind": "cosine"},
    "schedule.floor": {"schedule.kind": "cosine"},
    "schedule.gamma": {"schedule.kind": "exponential"},
    "schedule.milestones": {"schedule.kind": "multistep"},
    "scale.workers": {"scale.lr": "linear"},
    "local.on_loss": {"engine": "local"},
    "local.patience": {"engine": "local"},
    "local.restarts": {"engine": "local"},
    **{key: {"engine": "ray"} for key in known_keys() if key.startswith("ray.")},
}
"""What an example needs beside it."""


def test_every_key_is_explained_and_no_other():
    assert set(MEANING) == set(known_keys())
    assert {k.key for k in keys()} == set(known_keys())


@pytest.mark.parametrize("key", known_keys())
def test_an_example_is_taken_and_is_not_the_default(key):
    row = next(k for k in keys() if k.key == key)
    name, value = parse_setting(f"{key}={row.example}")
    config = make({"task": "digits", **WITH.get(key, {}), name: value}).plain()
    for part in key.split("."):
        config = config[part]
    assert key == "task.name" or config != row.default


def test_the_list_names_type_default_meaning_and_example(shell):
    code, out, _ = shell("config")
    assert code == 0
    assert "optimizer.lr: the learning rate\n    number, 0.05 unless given; --set optimizer.lr=0.1\n" in out
    assert "constant | polynomial | multistep | exponential | cosine" in out
    rows = json.loads(shell("config", "--json")[1])["keys"]
    assert [r["key"] for r in rows] == [k.key for k in keys()]


def test_of_a_task_it_says_what_would_run(shell):
    code, out, _ = shell("config", "word2vec", "--set", "optimizer.lr=0.5")
    assert code == 0
    found = tomllib.loads(out)
    assert (found["data"]["batch"], found["schedule"]["kind"], found["optimizer"]["lr"]) == (256, "polynomial", 0.5)
    assert found == json.loads(shell("config", "word2vec", "--set", "optimizer.lr=0.5", "--json")[1])


def test_settings_without_a_task_are_refused(shell):
    code, out, err = shell("config", "--set", "optimizer.lr=0.5")
    assert (code, out) == (2, "")
    assert "need a task" in err


def test_the_page_of_all_keys_is_what_the_keys_say(shell):
    page = Path(__file__).parent.parent / "docs" / "configuration.md"
    code, out, _ = shell("config", "--markdown")
    assert code == 0
    assert page.read_text(encoding="utf-8") == out, "offbeat config --markdown > docs/configuration.md"
    for key in keys():
        assert f"| `{key.key}` |" in out
