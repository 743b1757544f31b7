"""The surface: what a person types, what they get back, and what they are told when it is wrong."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offbeat import cli
from offbeat.lab.config import known_keys
from offbeat.lab.studies.compare import Spread
from offbeat.report.numbers import spread


@pytest.fixture
def offbeat(capsys, monkeypatch, tmp_path):
    """Runs the command line in this process, in an empty folder; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*args: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["offbeat", *map(str, args)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return run


def refused(result: tuple[int, str, str], *words: str) -> None:
    """Bad input: exit code 2, one line on stderr, nothing on stdout, no traceback."""
    code, out, err = result
    assert code == 2, (code, out, err)
    assert out == ""
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    for word in words:
        assert word in err, err


def test_help_is_instant_because_nothing_heavy_is_imported():
    code = textwrap.dedent("""
        import sys
        sys.argv = ["offbeat", "--help"]
        from offbeat import cli
        try:
            cli.main()
        finally:
            heavy = {"torch", "pyarrow", "ray", "numpy", "sklearn", "matplotlib"} & set(sys.modules)
            assert not heavy, heavy
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compare" in done.stdout


def test_json_is_one_object_with_the_promised_keys(offbeat):
    code, out, _ = offbeat("run", "quadratic", "--solver", "asgd", "--workers", 3, "--budget", "50updates", "--json")
    assert code == 0
    summary = json.loads(out)
    promised = "status run solver workers updates samples loss accuracy mean_staleness virtual_seconds"
    assert set(f"{promised} samples_per_second params_sha256".split()) <= set(summary)
    assert (summary["status"], summary["solver"], summary["workers"], summary["updates"]) == ("done", "asgd", 3, 50)
    assert Path(summary["run"]).parent.name == "runs"


def test_a_repeated_run_is_shown_and_not_run(offbeat):
    first = json.loads(offbeat("run", "quadratic", "--budget", "50updates", "--json")[1])
    second = json.loads(offbeat("run", "quadratic", "--budget", "50updates", "--json")[1])
    assert first == second  # wall seconds included
    third = json.loads(offbeat("run", "quadratic", "--budget", "50updates", "--json", "--again")[1])
    assert third["params_sha256"] == first["params_sha256"]
    assert third["wall_seconds"] != first["wall_seconds"]


def test_the_printed_configuration_is_taken_back(offbeat, tmp_path):
    args = ["--workers", 5, "--delay", "30ms@0,3-4", "--budget", "40updates", "--set", "optimizer.momentum=0.5"]
    first = json.loads(offbeat("run", "quadratic", *args, "--set", "task.noise=0.1", "--json")[1])
    code, toml, _ = offbeat("show", first["run"], "--toml")
    assert code == 0
    (tmp_path / "again.toml").write_text(toml)
    second = json.loads(offbeat("run", "again.toml", "--out", "elsewhere", "--json")[1])
    assert second["params_sha256"] == first["params_sha256"]


def test_out_names_the_folder_and_another_run_does_not_go_there(offbeat):
    assert offbeat("run", "quadratic", "--budget", "20updates", "--out", "mine", "--json")[0] == 0
    assert Path("mine/run.json").exists()
    refused(offbeat("run", "quadratic", "--budget", "30updates", "--out", "mine"), "mine", "another configuration")
    assert offbeat("run", "quadratic", "--budget", "30updates", "--out", "mine", "--again", "--json")[0] == 0


def test_divergence_has_its_own_exit_code_and_names_the_cause(offbeat):
    args = ["--workers", 16, "--set", "optimizer.lr=0.9", "--budget", "2000updates", "--json"]
    code, out, err = offbeat("run", "quadratic", *args)
    assert code == 3
    assert json.loads(out)["status"] == "diverged"
    assert "learning rate x staleness" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["run", "quadratic", "--solver", "agsd"], ["'agsd'", "'asgd'", "plain"]),
        (["run", "digitz"], ["'digitz'", "'digits'"]),
        (["run", "quadratic", "--set", "optimzer.lr=1"], ["'optimzer'", "'optimizer'"]),
        (["run", "quadratic", "--set", "cluster.delya=1ms"], ["cluster.delya", "cluster.delay"]),
        (["run", "quadratic", "--set", "optimizer.momentumm=0.9"], ["'momentumm'", "'momentum'"]),
        (["run", "quadratic", "--set", "solver.lam=0.9"], ["asgd", "'lam'", "clip"]),
        (["run", "quadratic", "--solver", "constant-delay", "--set", "solver.delai=3"], ["'delai'", "'delay'"]),
        (["run", "quadratic", "--set", "optimizer.name=adamm"], ["'adamm'", "adam"]),
        (["run", "quadratic", "--set", "optimizer.name=lbfgs"], ["closure"]),
        (["run", "quadratic", "--set", "task.dimm=3"], ["'dimm'", "'dim'"]),
        (["run", "quadratic", "--workers", "0"], ["workers", "0"]),
        (["run", "quadratic", "--workers", "-3"], ["workers", "-3"]),
        (["run", "quadratic", "--workers", "many"], ["--workers"]),
        (["run", "quadratic", "--batch", "0"], ["batch", "0"]),
        (["run", "quadratic", "--seed", "-1"], ["seed", "-1"]),
        (["run", "quadratic", "--workers", "two"], ["--workers", "'two'"]),
        (["run", "quadratic", "--workers", "99999999999"], ["workers", "at most 1,000,000"]),
        (["run", "quadratic", "--set", "optimizer.lr=true"], ["optimizer.lr", "number", "True"]),
        (["run", "quadratic", "--set", "data.batch=true"], ["data.batch", "number", "True"]),
        (["run", "quadratic", "--set", "optimizer.momentum=abc"], ["optimizer.momentum", "number", "'abc'"]),
        (
            ["run", "quadratic", "--set", "optimizer.name=adam", "--set", "optimizer.betas=0.9"],
            ["optimizer.betas", "list"],
        ),
        (["run", "quadratic", "--set", "optimizer.nesterov=yes"], ["optimizer.nesterov", "true or false", "'yes'"]),
        (["run", "quadratic", "--pool", "-1"], ["--pool", "-1"]),
        (["run", "quadratic", "--set", "optimizer.lr=0"], ["lr", "positive"]),
        (["run", "quadratic", "--set", "optimizer.lr=-1"], ["lr", "positive"]),
        (["run", "quadratic", "--set", "optimizer.lr=nan"], ["lr"]),
        (["run", "quadratic", "--set", "optimizer.lr=inf"], ["lr"]),
        (["run", "quadratic", "--workers", "4", "--delay", "30ms@7"], ["worker 7", "0-3"]),
        (["run", "quadratic", "--delay", "30lightyears"], ["delay", "30lightyears"]),
        (["run", "quadratic", "--budget", "0updates"], ["budget", "more than 0 updates"]),
        (["run", "quadratic", "--set", "evaluate.every=0epochs"], ["evaluate.every", "more than 0 epochs"]),
        (["run", "quadratic", "--budget", "soon"], ["--budget", "'soon'"]),
        (["run", "quadratic", "--budget", "2epochs"], ["no training set"]),
        (["run", "quadratic", "--budget", "2s", "--set", "cluster.compute=0"], ["never ends", "worker 0"]),
        (["run", "quadratic", "--until", "beauty=1"], ["'beauty'", "accuracy"]),
        (["run", "quadratic", "--until", "accuracy=2"], ["accuracy", "between 0 and 1"]),
        (["run", "quadratic", "--until", "accuracy=0.9"], ["accuracy=0.9", "'quadratic' measures loss"]),
        (["run", "digits", "--data", "text8"], ["'digits' brings its own data", "'text8'"]),
        (["run", "quadratic", "--solver", "plain", "--workers", "4"], ["plain", "one worker"]),
        (["run", "quadratic", "--set", "novalue"], ["key=value"]),
        (["run", "quadratic", "--set", "task.dim=10_000_000_000"], ["dim from 1 to 100,000,000", "10000000000"]),
        (["run", "quadratic", "--set", "task.noise=inf"], ["finite", "inf"]),
        (["run", "quadratic", "--set", "task.batch=inf"], ["unknown option of task 'quadratic' 'batch'"]),
        (["run", "digits", "--set", "task.model=[1,2]"], ["task.model must be text", "[1, 2]"]),
        (["run", "quadratic", "--set", "optimizer.multipliers={x={lr=-1}}"], ["multipliers", "equal to 0", "-1"]),
        (["run", "quadratic", "--set", f"task.noise={'[' * 9999}"], ["task.noise is nested too deeply"]),
        (["run", "digits", "--batch", "100000"], ["batch is 100000", "1437"]),
        (["run", "digits", "--global-batch", "30", "--workers", "4"], ["30", "4 workers"]),
        (["run", "digits", "--global-batch", "32", "--batch", "4"], ["not both"]),
        (["run", "missing.toml"], ["missing.toml"]),
        (["run", "no_such_package.tasks:make"], ["no_such_package"]),
        (["run", "json:no_such_name"], ["no_such_name"]),
        (["run", "quadratic", "--out", "/proc/nowhere"], ["/proc/nowhere"]),
        (["run", "quadratic", "--out", "/dev/null"], ["/dev/null", "a run needs a folder"]),
        (["run", "quadratic", "--on-divergence", "explode"], ["on_divergence"]),
        (["run", "quadratic", "--no-such-flag"], ["--no-such-flag"]),
        (["run"], ["'task'"]),
        (["resume", "nowhere"], ["nowhere", "run.json"]),
        (["show", "nowhere"], ["nowhere", "run.json"]),
        (["compare", "quadratic", "--solvers", "plain,snyc"], ["'snyc'", "'sync'"]),
        (["compare", "quadratic", "--seeds", "0"], ["--seeds"]),
        (["compare", "quadratic", "--target", "accuracy"], ["accuracy=0.98"]),
        (["compare", "quadratic", "--out", "/proc/nowhere"], ["/proc/nowhere"]),
        (["sweep", "nothing.toml"], ["nothing.toml"]),
        (["list", "solver"], ["'solver'", "solvers"]),
        (["data", "get", "mnits"], ["'mnits'", "'mnist'"]),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) and v and v[0] in dir(cli) else "",
)
def test_bad_input_gets_one_clear_line(offbeat, args, words):
    refused(offbeat(*args), *words)


def test_bad_files_get_one_clear_line(offbeat, tmp_path):
    (tmp_path / "broken.toml").write_text("task = [")
    refused(offbeat("run", "broken.toml"), "broken.toml", "TOML")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/run.json").write_text("{")
    refused(offbeat("show", "folder"), "run.json")
    (tmp_path / "folder/run.json").write_text('{"format": 99, "status": "done", "config": {}}')
    for command in (["resume"], ["show"], ["report"], ["diff", "folder"], ["runs", "list"]):
        refused(offbeat(*command, "folder"), "newer offbeat", "99")


def test_a_task_of_ones_own_from_the_command_line(offbeat, tmp_path, monkeypatch):
    (tmp_path / "mine_by_command.py").write_text(
        textwrap.dedent("""
            import torch
            from torch import nn

            def task(width=4):
                x = torch.linspace(-1, 1, 64)[:, None]
                train = torch.utils.data.TensorDataset(x, 3 * x)
                return nn.Linear(1, 1), nn.MSELoss(), train, train
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    code, out, err = offbeat(
        "run", "mine_by_command:task", "--batch", 8, "--budget", "30epochs", "--set", "optimizer.lr=0.1", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["loss"] < 1e-3
    refused(offbeat("run", "mine_by_command:task", "--set", "task.widht=8"), "'widht'", "'width'")


def test_dry_run_runs_nothing_and_says_what_it_would_take(offbeat):
    code, out, _ = offbeat("run", "quadratic", "--dry-run", "--json")
    assert code == 0
    assert {"memory", "disk", "wall_time", "gradients"} <= set(json.loads(out))
    assert not Path("runs").exists()


def test_a_comparison_takes_no_outcome_of_another_configuration(offbeat):
    base = ("compare", "quadratic", "--solvers", "asgd", "--seeds", "1", "--workers", "2", "--out", "c")
    assert offbeat(*base, "--budget", "20updates")[0] == 0
    code, _, err = offbeat(*base, "--budget", "30updates")
    assert code != 0
    assert "holds a run of another configuration" in err
    assert offbeat(*base, "--budget", "20updates")[0] == 0, "what was there is still there"


def test_a_sweep_is_one_tidy_table_and_skips_what_is_done(offbeat, tmp_path):
    (tmp_path / "grid.toml").write_text(
        textwrap.dedent("""
            task = "quadratic"
            cluster = { workers = 2 }
            budget = { updates = 30 }

            [sweep]
            seeds = [0, 7]
            grid = { "solver.name" = ["sync", "asgd"], "optimizer.lr" = [0.1, 0.2] }
        """)
    )
    code, out, _ = offbeat("sweep", "grid.toml", "--dry-run", "--json")
    assert json.loads(out)["cells"] == 8
    code, out, err = offbeat("sweep", "grid.toml", "--json")
    assert code == 0, err
    table = pq.read_table("sweeps/grid/results.parquet").to_pylist()
    assert len(table) == 8
    points = {(r["solver.name"], r["optimizer.lr"], r["seed"]) for r in table}
    assert points == {(s, lr, seed) for s in ("sync", "asgd") for lr in (0.1, 0.2) for seed in (0, 7)}
    assert all(r["status"] == "done" and r["updates"] == 30 for r in table)
    walls = [r["wall_seconds"] for r in table]
    assert offbeat("sweep", "grid.toml", "--json")[0] == 0
    assert [r["wall_seconds"] for r in pq.read_table("sweeps/grid/results.parquet").to_pylist()] == walls


def test_a_crashing_cell_costs_one_cell(offbeat, tmp_path, monkeypatch):
    (tmp_path / "crashing.py").write_text(
        textwrap.dedent("""
            import os
            from offbeat.tasks.quadratic import Quadratic

            class Crash(Quadratic):
                def gradient(self, point, batch, key):
                    os.kill(os.getpid(), 9)

            def task(crash=False):
                return Crash() if crash else Quadratic()
        """)
    )
    (tmp_path / "crash.toml").write_text(
        'task = "crashing:task"\nbudget = { updates = 10 }\nevaluate = { every = "5updates" }\n'
        '[sweep]\ngrid = { "task.crash" = [false, true], "optimizer.lr" = [0.1, 0.2] }\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code, out, err = offbeat("sweep", "crash.toml", "--json")
    assert code == 1
    statuses = {(r["task.crash"], r["optimizer.lr"]): r["status"] for r in json.loads(out)}
    assert statuses == {(False, 0.1): "done", (False, 0.2): "done", (True, 0.1): "failed", (True, 0.2): "failed"}
    assert "exit code -9" in err


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ('"solver.name" = ["sync", "nothing"]', ["solver.name=nothing", "unknown solver"]),
        ('"optimizer.momentumm" = [0.9]', ["optimizer.momentumm=0.9", "did you mean 'momentum'"]),
        ('"optimizer.name" = ["sgd", "lbfgs"]', ["optimizer.name=lbfgs", "closure"]),
        ('"solver.lamm" = [0.1]', ["solver.lamm=0.1", "unknown hyper-parameter"]),
        ('"budget.epochs" = [1]', ["budget.epochs=1", "this task has no training set, so epochs mean nothing"]),
    ],
)
def test_a_sweep_with_a_bad_cell_does_not_start(offbeat, tmp_path, grid, said):
    (tmp_path / "bad.toml").write_text(f'task = "quadratic"\n[sweep]\ngrid = {{ {grid} }}\n')
    refused(offbeat("sweep", "bad.toml"), *said)
    assert not Path("sweeps").exists()


def test_a_sweep_that_would_never_end_does_not_begin(offbeat, tmp_path):
    (tmp_path / "many.toml").write_text(
        'task = "quadratic"\n[sweep]\nseeds = 100_000_000\ngrid = { "optimizer.lr" = [0.1] }\n'
    )
    refused(offbeat("sweep", "many.toml", "--dry-run"), "at most 100,000 cells", "100,000,000")


def test_a_sweep_needs_its_section(offbeat, tmp_path):
    (tmp_path / "none.toml").write_text('task = "quadratic"\n')
    refused(offbeat("sweep", "none.toml"), "[sweep]")


def test_a_comparison_names_each_solver_once(offbeat):
    refused(offbeat("compare", "quadratic", "--solvers", "asgd,asgd"), "each solver once", "'asgd,asgd'")
    assert not Path("comparisons").exists()


def test_the_spread_of_equal_values_is_nothing():
    """0.1 three times has a mean that is not 0.1."""
    assert Spread.of([0.1, 0.1, 0.1]).std == spread([0.1, 0.1, 0.1]) == 0.0
    assert Spread.of([1.0, 3.0]).std == spread([1.0, 3.0]) == pytest.approx(2**0.5)


def test_a_comparison_with_a_wrong_option_does_not_start(offbeat):
    wrong = offbeat("compare", "quadratic", "--solvers", "asgd,dc-asgd", "--set", "dc-asgd:solver.lamm=2")
    refused(wrong, "unknown hyper-parameter", "did you mean 'lam'")
    assert not Path("comparisons").exists()


def test_a_comparison_gives_plain_sgd_one_undelayed_worker(offbeat):
    args = ["--workers", 4, "--delay", "30ms@0", "--budget", "60updates", "--seeds", 2, "--json"]
    code, out, err = offbeat("compare", "quadratic", *args, "--set", "sync:optimizer.lr=0.3")
    assert code == 0, err
    rows = json.loads(out)
    assert [(r["solver"], r["workers"], r["seed"]) for r in rows] == [
        (s, w, seed) for s, w in (("plain", 1), ("sync", 4), ("asgd", 4)) for seed in (0, 1)
    ]
    plain = rows[0]
    assert plain["virtual_seconds"] == pytest.approx(0.6)  # 60 batches of 10 ms, without delay
    config = json.loads(Path(rows[2]["folder"], "run.json").read_text())["config"]
    assert config["optimizer"]["lr"] == 0.3
    assert list(Path().glob("comparisons/*/comparison.png"))


@pytest.mark.parametrize("what", ["solvers", "tasks", "models", "engines"])
def test_lists(offbeat, what):
    code, out, _ = offbeat("list", what)
    assert code == 0
    assert len(out.splitlines()) > 2, "a heading, and something below it"


def test_a_list_says_why_an_engine_cannot_run_a_solver(offbeat):
    code, out, _ = offbeat("list", "solvers", "--why", "sync", "--json")
    assert code == 0
    rows = {row["engine"]: row["runs it"] for row in json.loads(out)}
    assert rows["sim"] == "yes"
    assert "in place, without a lock" in rows["threads"]
    refused(offbeat("list", "solvers", "--why", "syncc"), "'syncc'", "'sync'")
    refused(offbeat("list", "tasks", "--why", "sync"), "--why", "offbeat list solvers --why sync")


def test_data_list(offbeat, monkeypatch, tmp_path):
    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path / "cache"))
    code, out, _ = offbeat("data", "list", "--json")
    assert code == 0
    assert {r["name"]: r["here"] for r in json.loads(out)}["mnist"] == "no"
    assert "fashion-mnist" in offbeat("data", "list")[1]


WEIRD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=8),
    st.sampled_from(["10ms", "normal(1,2)", "30ms@0", "2epochs", "accuracy=0.5", "asgd", "sync", "sgd", "adam", "all"]),
    st.lists(st.one_of(st.integers(-2, 3), st.text(max_size=4)), max_size=2),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.dictionaries(st.sampled_from([*known_keys(), "solver.delay", "optimizer.momentum"]), WEIRD, max_size=3)
)
def test_any_configuration_works_or_is_refused_in_one_line(values):
    """Through building and the first events: a ConfigError in one line, or a run; never anything else."""
    from offbeat.core.errors import ConfigError
    from offbeat.lab.config import make
    from offbeat.lab.runs.execute import execute
    from offbeat.lab.runs.plan import build

    merged = {"task.name": "quadratic", "budget.updates": 3, **values}
    merged = {k: v for k, v in merged.items() if v is not None}
    merged.pop("cluster.schedule", None)
    if isinstance(merged.get("cluster.workers"), int):
        merged["cluster.workers"] = min(merged["cluster.workers"], 5)
    for key in ("budget.updates", "budget.samples", "budget.epochs", "budget.seconds"):
        if key != "budget.updates" and key in merged:
            merged.pop("budget.updates", None)
            if isinstance(merged[key], float | int) and not merged[key] < 3:
                merged[key] = 3
    if "budget.seconds" in merged and isinstance(merged.get("cluster.compute"), float | int):
        merged["cluster.compute"] = max(merged["cluster.compute"], 0.01)  # fewer gradients, or none that take no time
    try:
        status = execute(build(make(merged)), None, pool=0).status
    except ConfigError as e:
        status = str(e)
    assert status in ("done", "diverged", "failed") or (status and "\n" not in status)
