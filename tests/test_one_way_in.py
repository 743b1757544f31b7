"""One way in: the same words in Python and in a shell are the same run, and the same mistakes get the same answer."""

import json
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest
import torch

import offbeat
from harness import mlp_task
from offbeat import cli
from offbeat.core.budget import Amount, Budget, Target
from offbeat.core.errors import ConfigError
from offbeat.lab.arguments import Words
from offbeat.solvers.asgd import ASGD
from topics import data_cache, topics_file  # noqa: F401  # fixtures


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def shell(capsys, monkeypatch):
    """What a command prints and its exit code."""

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["offbeat", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


def recorded(run: offbeat.Run) -> dict:
    assert run.path is not None
    return json.loads((run.path / "run.json").read_text())


SAME = {
    "quadratic, nothing said": (("quadratic",), {}, "quadratic"),
    "quadratic, alone": (
        ("quadratic", "plain"),
        {"budget": "20updates"},
        "quadratic --solver plain --budget 20updates",
    ),
    "digits": (
        ("digits", "asgd", 8),
        {"budget": "0.2epochs", "seed": 1},
        "digits --solver asgd --workers 8 --budget 0.2epochs --seed 1",
    ),
    "digits, many words": (
        ("digits", "dc-asgd", 3),
        {
            "budget": "100samples",
            "batch": 5,
            "evaluate_every": "50samples",
            "partition": "split",
            "validation": 0.2,
            "patience": 3,
            "gap": False,
            "saves_per_epoch": 20,
            "settings": {"optimizer.lr": 0.01, "solver.lam": 1.5, "schedule.kind": "cosine"},
        },
        "digits --solver dc-asgd --workers 3 --budget 100samples --batch 5 --saves-per-epoch 20 "
        "--set evaluate.every=50samples --set data.partition=split --set data.validation=0.2 "
        "--set evaluate.patience=3 --set record.gap=false --set optimizer.lr=0.01 --set solver.lam=1.5 "
        "--set schedule.kind=cosine",
    ),
    "a target": (("quadratic",), {"budget": "loss=0.5"}, "quadratic --until loss=0.5"),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_words_are_the_same_run(name, shell):
    args, words, line = SAME[name]
    python = offbeat.train(*args, **words, out="python")
    code, out, err = shell("run", *line.split(), "--json")
    assert code == 0, err
    typed = json.loads(out)
    assert recorded(python)["config"] == json.loads((Path(typed["run"]) / "run.json").read_text())["config"]
    assert typed["run"] == f"runs/{recorded(python)['key']}"
    assert typed["params_sha256"] == python.summary["params_sha256"]


def test_the_one_finds_what_the_other_has_done(shell):
    first = offbeat.train("quadratic", "asgd", 3, budget="30updates")
    code, out, _ = shell("run", "quadratic", "--workers", 3, "--budget", "30updates", "--json")
    assert code == 0
    assert json.loads(out)["wall_seconds"] == first.summary["wall_seconds"], "shown, and not run again"


def test_word2vec_in_python_has_the_schedule_the_batch_and_the_gap_of_its_task(shell, topics_file, data_cache):  # noqa: F811
    own = {"task.data": str(topics_file), "task.dim": 6, "task.sample": 0.05}
    python = offbeat.train("word2vec", "asgd", 3, budget="0.05epochs", settings=own, out="python")
    sets = [part for key, value in own.items() for part in ("--set", f"{key}={value}")]
    code, out, err = shell(
        "run", "word2vec", "--solver", "asgd", "--workers", 3, "--budget", "0.05epochs", *sets, "--json"
    )
    assert code == 0, err
    typed = json.loads(out)
    assert typed["run"] == f"runs/{recorded(python)['key']}"
    assert typed["params_sha256"] == python.summary["params_sha256"]
    config = recorded(python)["config"]
    assert config["schedule"]["kind"] == "polynomial"
    assert (config["data"]["batch"], config["record"]["gap"]) == (256, False)


def test_a_cluster_and_a_budget_are_said_in_full(shell):
    """As values they come to the same words: what they were made by does not matter."""
    cluster = offbeat.Cluster.parse(workers=3, compute="normal(10ms,1ms)", delay="30ms@0")
    budget = Budget(Amount(40, "updates"), Target("loss", 1e-9))
    python = offbeat.train("quadratic", "asgd", cluster, budget=budget)
    line = "--workers 3 --delay 30ms@0 --budget 40updates --until loss=1e-09 --set cluster.compute=normal(10ms,1ms)"
    code, out, err = shell("run", "quadratic", *line.split(), "--json")
    assert code == 0, err
    assert json.loads(out)["run"] == str(python.path)


def test_objects_take_the_place_of_what_a_name_would_make():
    """The rule `asgd` on the digits, given as names and as objects: the same bits, and the record says which."""
    words = {"budget": "60samples", "batch": 6, "evaluate_every": "30samples"}
    named = offbeat.train("digits", "asgd", 2, **words, settings={"optimizer.lr": 0.02}, out="named")
    task = offbeat.named_task("digits")
    objects = offbeat.train(task, offbeat.solver("asgd", lr=0.02), 2, **words, out="objects")
    assert torch.equal(named.params, objects.params)
    assert "from" not in named.config
    assert objects.config["from"] == "python"
    assert (objects.config["solver"]["name"], objects.config["optimizer"]["lr"]) == ("asgd", 0.02)
    same = ("cluster", "data", "budget", "evaluate", "record", "seed", "engine")
    assert {k: named.config[k] for k in same} == {k: objects.config[k] for k in same}


def test_a_named_rule_gets_the_optimizer_that_suits_a_task_given_as_an_object():
    """cifar10-full has its learning rate, momentum and factors from its paper; so it has as an object."""
    task = mlp_task()
    task.defaults = {"optimizer.lr": 0.003, "optimizer.momentum": 0.5, "data.batch": 7}
    run = offbeat.train(task, "asgd", 2, budget="3updates", out=False)
    assert run.config["optimizer"] == {"name": "sgd", "lr": 0.003, "momentum": 0.5}
    assert run.config["data"]["batch"] == 7


def test_what_is_different_has_another_address():
    """A clipped rule is not the same run, and of a closure nobody can tell."""
    sgd = partial(torch.optim.SGD, lr=0.1)
    clipped = ASGD(sgd)
    clipped.clip = 0.05
    paths = [offbeat.train("quadratic", rule, 2, budget="5updates").path for rule in (ASGD(sgd), clipped, ASGD(sgd))]
    assert paths[0] == paths[2]
    assert paths[0] != paths[1]
    hidden = [ASGD(lambda p, lr=lr: torch.optim.SGD(p, lr=lr)) for lr in (0.1, 0.2)]
    runs = [offbeat.train("quadratic", rule, 2, budget="5updates") for rule in hidden]
    assert runs[0].path != runs[1].path
    assert not torch.equal(runs[0].params, runs[1].params)


@pytest.mark.parametrize("key", ["optimizer.lr", "schedule.kind", "solver.clip"])
def test_an_object_is_not_changed_by_a_setting(key):
    with pytest.raises(ConfigError, match=f"{key} cannot be set: the solver was given as an object"):
        offbeat.train("quadratic", offbeat.solver("asgd"), 2, settings={key: 1}, out=False)


# An argument of train, the key that it stands for, a wrong value, and what is said of it.
WRONG = [
    ("sampling", "data.sampling", "bogus", "data.sampling must be 'shuffled' or 'replacement', got 'bogus'"),
    ("patience", "evaluate.patience", -1, "evaluate.patience must be greater than or equal to 1, got -1"),
    (
        "saves_per_epoch",
        "record.saves_per_epoch",
        float("nan"),
        "record.saves_per_epoch must be a finite number, got nan",
    ),
    ("on_divergence", "on_divergence", "explode", "on_divergence must be 'stop' or 'continue', got 'explode'"),
    ("diagnose_every", "record.diagnose_every", 0, "record.diagnose_every must be greater than or equal to 1, got 0"),
    ("partition", "data.partition", 3, "data.partition must be a valid string, got 3"),
    ("partition", "data.partition", "splitt", "splitt"),
    ("local", "local", 5, "local must be a section with keys, got 5"),
    ("batch", "data.batch", 0, "data.batch must be greater than or equal to 1, got 0"),
    ("batch", "data.batch", True, "data.batch must be a number, got True"),
    ("seed", "seed", -1, "seed must be greater than or equal to 0, got -1"),
    ("seed", "seed", 2**63, "seed must be less than 9223372036854775808"),
    ("evaluate_every", "evaluate.every", "10s", "evaluate.every must be in epochs, samples or updates, got '10s'"),
    ("validation", "data.validation", 1.5, "data.validation must be less than 1, got 1.5"),
    ("keep_best", "evaluate.keep_best", "perhaps", "evaluate.keep_best must be a valid boolean"),
    ("engine", "engine", "cloud", "cloud"),
    ("solver", "solver.name", "agsd", "unknown solver 'agsd' (did you mean 'asgd'?)"),
]


def toml(value: object) -> str:
    return json.dumps(value) if isinstance(value, str | bool) else str(value)


@pytest.mark.parametrize(("word", "key", "value", "said"), WRONG, ids=lambda v: str(v)[:30])
def test_a_wrong_value_gets_the_same_answer_everywhere(word, key, value, said, shell):
    with pytest.raises(ConfigError) as refusal:
        offbeat.train("quadratic", **{"budget": "5updates", word: value}, out=False)
    assert said in str(refusal.value)
    code, out, err = shell("run", "quadratic", "--budget", "5updates", "--set", f"{key}={toml(value)}")
    assert (code, out) == (2, "")
    assert err == f"offbeat: {refusal.value}\n"
    cell = f"seeds = [{value}]\nlist = [{{}}]" if key == "seed" else f'list = [{{ "{key}" = {toml(value)} }}]'
    Path("sweep.toml").write_text(f'task = "quadratic"\n[sweep]\n{cell}\n')
    code, out, err = shell("sweep", "sweep.toml")
    assert (code, out) == (2, "")
    assert str(refusal.value) in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"pool": -5}, "pool must be a number of threads from 0, got -5"),
        ({"pool": True}, "pool must be a number of threads from 0, got True"),
        ({"solver": 5}, "solver must be a name, a class or an object (offbeat.solver(...)), got 5"),
        ({"solver": dict}, "solver 'dict' must be a class derived from offbeat.core.solver.Solver"),
        ({"cluster": 0}, "workers"),
        ({"cluster": "two"}, "workers"),
        ({"budget": 5}, "budget needs a unit"),
        ({"settings": {"optimzer.lr": 1}}, "unknown key 'optimzer' (did you mean 'optimizer'?)"),
        ({"settings": 5}, "settings must be keys and values"),
        ({"out": 5}, "out must be a folder"),
        ({"callbacks": 5}, "callbacks must be a list of objects"),
    ],
)
def test_what_only_python_can_get_wrong_is_told_in_one_line(words, said):
    with pytest.raises(ConfigError) as refusal:
        offbeat.train("quadratic", **{"out": False, **words})
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_numbers_as_text_are_numbers_for_both(shell):
    python = offbeat.train("quadratic", budget="5updates", seed="3", batch="4")
    code, out, _ = shell(
        "run", "quadratic", "--budget", "5updates", "--set", 'seed="3"', "--set", 'data.batch="4"', "--json"
    )
    assert code == 0
    assert json.loads(out)["run"] == str(python.path)


def test_an_unknown_argument_lists_every_argument():
    with pytest.raises(ConfigError, match="unknown argument of train 'machines'") as refusal:
        offbeat.train("quadratic", machines=2)
    for name in ("task", "solver", "cluster", "budget", "batch", "settings", "local", "pool", "fold"):
        assert f" {name}" in str(refusal.value)


def test_help_explains_every_argument():
    from inspect import signature

    text = offbeat.train.__doc__
    words = [*signature(offbeat.train).parameters, *Words.__annotations__]
    assert "lr" in words
    for name in words:
        assert name == "words" or f"\n        {name}: " in text, name


def test_a_file_is_a_task_for_python_too(shell):
    Path("mine.toml").write_text('task = "quadratic"\nsolver = "sync"\nbudget.updates = 7\ncluster.workers = 3\n')
    run = offbeat.train("mine.toml", lr=0.02)
    assert (run.summary["solver"], run.summary["updates"], run.summary["workers"]) == ("sync", 7, 3)
    _, out, _ = shell("run", "mine.toml", "--set", "optimizer.lr=0.02", "--json")
    assert json.loads(out)["run"] == str(run.path)


def test_a_class_is_made_into_a_solver_and_an_object_is_one_already():
    made = offbeat.solver(ASGD, lr=0.1)
    assert (type(made), made.label) == (ASGD, "ASGD")
    with pytest.raises(ConfigError, match="this is a solver already"):
        offbeat.solver(made)
    with pytest.raises(ConfigError, match="a solver's name must be text or a class, got 5"):
        offbeat.solver(5)


def test_a_class_of_a_solver_has_the_options_and_the_optimizer_of_the_words():
    by_name = offbeat.train("quadratic", "asgd", 2, budget="9updates", lr=0.01, out=False, settings={"solver.clip": 1})
    by_class = offbeat.train("quadratic", ASGD, 2, budget="9updates", lr=0.01, out=False, settings={"solver.clip": 1})
    assert by_class.summary["params_sha256"] == by_name.summary["params_sha256"]


# -- a run made in Python comes back -----------------------------------------------------------------------------------


def shown(shell, run: offbeat.Run) -> str:
    code, out, err = shell("show", run.path, "--toml")
    assert (code, err) == (0, "")
    tomllib.loads(out)  # it is TOML
    return out


def test_what_python_was_given_by_name_comes_back_as_a_file_that_run_takes(shell):
    words = {"budget": "6updates", "partition": "split", "settings": {"optimizer.momentum": 0.5}}
    first = offbeat.train("digits", "dc-asgd", 2, **words)
    Path("again.toml").write_text(shown(shell, first))
    code, out, err = shell("run", "again.toml", "--json")
    assert code == 0, err
    assert json.loads(out)["run"] == str(first.path), "the same words are the same run"


def test_a_run_with_a_solver_as_an_object_still_gives_its_model_back():
    made = offbeat.train("digits", offbeat.solver("asgd", lr=0.1), 2, budget="6updates")
    x = torch.zeros(2, 1, 32, 32)
    assert torch.equal(offbeat.Run.load(made.path).model()(x), made.model()(x))


@pytest.mark.parametrize("which", ["task", "solver", "task and the solver"])
def test_what_was_given_as_an_object_is_named_and_not_run_as_something_else(which, shell):
    task = mlp_task() if "task" in which else "quadratic"
    solver = ASGD(partial(torch.optim.SGD, lr=0.1)) if "solver" in which else "asgd"
    made = offbeat.train(task, solver, 2, budget="6updates", batch=4)
    text = shown(shell, made)
    said = "were given as Python objects" if "and" in which else "was given as a Python object"
    assert text.startswith(f"# The {which} {said}")
    Path("again.toml").write_text(text)
    code, out, err = shell("run", "again.toml")
    assert (code, out) == (2, "")
    assert f"the {which} " in err
    assert "run the script again" in err
    if "task" in which:
        with pytest.raises(ConfigError, match=r"its task was given as a Python object.*Run.load\(path, task=...\)"):
            offbeat.Run.load(made.path).model()


def test_workers_is_a_word_of_python_as_it_is_of_the_shell():
    def key(*cluster, **words):
        return offbeat.train("digits", "asgd", *cluster, budget="1epochs", dry_run=True, **words)["folder"]

    assert key(workers=3) == key(3) != key(4)
    assert key("spot16", workers=8) != key("spot16") == key("spot16", workers=16)
    with pytest.raises(ConfigError, match=r"^workers are given twice: cluster=3 and workers=4$"):
        key(3, workers=4)
