"""How long a run lasts, when it is enough, what is kept, and what is said when it went wrong."""

import json
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import offbeat
from harness import cluster, mlp_task, points
from offbeat.core.budget import Amount, Budget, Target
from offbeat.folders.description import read_description
from offbeat.folders.tensor_files import read_save
from offbeat.solvers.asgd import ASGD
from offbeat.solvers.parameter_server import ParameterServer
from offbeat.solvers.sync import Sync
from offbeat.tasks.quadratic import Quadratic

SGD = partial(torch.optim.SGD, lr=0.05)
NORMAL = "normal(10ms,3ms)"


def train(task=None, solver=None, machines=None, **options):
    options = {"budget": "100updates", "out": False, "batch": 8, **options}
    return offbeat.train(task or mlp_task(), solver or ASGD(SGD), machines or cluster(3, compute=NORMAL), **options)


def column(run, name):
    return run.metrics[name].to_pylist()


class Scripted(Quadratic):
    """Its held-out metrics are given: one dictionary an evaluation, the last one from then on. Keeps each point."""

    def __init__(self, **series):
        super().__init__(2, noise=0.1)
        length = max(len(v) for v in series.values())
        self.script = [{k: v[min(i, len(v) - 1)] for k, v in series.items()} for i in range(length)]
        self.points = []

    def evaluate(self, point, mapper):
        self.points.append(point.x.clone())
        return {"loss": 1.0, **self.script[min(len(self.points), len(self.script)) - 1]}


# -- amounts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [ASGD, Sync])
def test_a_budget_of_updates_is_met_exactly(solver):
    run = train(solver=solver(SGD), budget="37updates")
    assert run.status == "done"
    assert run.why == "budget of 37updates reached"
    assert run.summary["updates"] == 37
    assert run.summary["samples"] == 37 * 8 * (1 if solver is ASGD else 3)


@pytest.mark.parametrize(("budget", "samples"), [("200samples", 200), ("201samples", 208), ("8samples", 8)])
def test_a_budget_of_samples_ends_with_the_gradient_that_meets_it(budget, samples):
    run = train(budget=budget)
    assert run.summary["samples"] == samples == sum(r["samples"] for r in run.trace.to_pylist() if r["applied"])


def test_a_synchronous_step_is_not_split_by_the_budget():
    run = train(solver=Sync(SGD), budget="100samples")  # steps of 3 x 8
    assert (run.summary["updates"], run.summary["samples"]) == (5, 120)


def test_epochs_are_samples_over_the_training_set_over_all_workers():
    run = train(budget="1.5epochs")  # of 200 samples
    assert run.summary["samples"] == 304
    assert run.summary["epochs"] == 304 / 200
    assert column(run, "epoch")[-1] == 304 / 200


def test_a_refused_gradient_counts_as_processed_and_not_as_applied():
    solver = ParameterServer(SGD, gate=lambda s, arrival: arrival.tau < 2)
    run = train(solver=solver, machines=cluster(6, compute="exponential(10ms)"), budget="400samples")
    outcomes = [r["outcome"] for r in run.trace.to_pylist()]
    assert outcomes.count("refused") > 5
    assert run.summary["samples"] == 400 == 8 * (outcomes.count("applied") + outcomes.count("refused"))
    assert run.summary["samples_applied"] == 8 * outcomes.count("applied") == 8 * run.summary["updates"]


def test_a_budget_of_seconds_is_virtual_and_ends_on_the_dot():
    run = train(budget="0.2s")
    assert run.summary["virtual_seconds"] == 0.2
    rows = run.trace.to_pylist()
    applied = [r["time"] for r in rows if r["applied"]]
    assert 0.18 < max(applied) <= 0.2
    # Everything still in flight is there, and has begun before the end.
    assert [r["worker"] for r in rows if r["outcome"] == "in flight"] == [0, 1, 2]
    assert all(r["started"] <= 0.2 == r["time"] for r in rows if r["outcome"] == "in flight")
    longer = train(budget="0.4s").trace.to_pylist()
    assert [r for r in longer if r["applied"]][: len(applied)] == [r for r in rows if r["applied"]]


def test_an_event_at_the_deadline_still_counts():
    run = train(machines=cluster(1, compute="10ms"), budget="50ms")
    assert run.summary["updates"] == 5


def test_a_budget_per_worker_leaves_the_slow_one_alone_at_the_end():
    """2 epochs of 200 samples over 4 workers: 100 each, in batches of 8, so 13 gradients each."""
    machines = cluster(4, compute=["10ms", "40ms@2"])
    run = train(machines=machines, budget=Budget(Amount(2, "epochs"), per="worker"))
    assert run.status == "done"
    assert run.why == "every worker has finished"
    rows = [r for r in run.trace.to_pylist() if r["applied"]]
    assert [sum(r["worker"] == i for r in rows) for i in range(4)] == [13] * 4
    # The others end at 13 x 10 ms, it at 13 x 40 ms: a tail of 10 gradients that nobody disturbs.
    assert run.summary["virtual_seconds"] == pytest.approx(13 * 0.04)
    tail = [r for r in rows if r["time"] > 13 * 0.01 + 1e-9]
    assert len(tail) == 10
    assert {r["worker"] for r in tail} == {2}
    assert [r["staleness"] for r in tail[1:]] == [0] * 9
    assert tail[0]["staleness"] > 0
    whole = train(machines=machines, budget="2epochs")
    assert whole.summary["virtual_seconds"] < run.summary["virtual_seconds"] / 2


def test_a_synchronous_budget_per_worker_ends_for_all_at_once():
    run = train(solver=Sync(SGD), budget=Budget(Amount(240, "samples"), per="worker"))
    assert run.summary["updates"] == 10
    assert run.summary["samples"] == 240


def test_a_schedule_that_is_used_up_is_a_finished_run():
    run = train(Quadratic(2), machines=cluster(2, schedule=[(1.0, 0), (2.0, 1), (3.0, 0)]), budget="10updates")
    assert (run.status, run.summary["updates"]) == ("done", 3)


def test_without_workers_a_run_has_failed():
    run = train(Quadratic(2), machines=cluster(2, events=["lose 0 at 25ms", "lose 1 at 35ms"]))
    assert run.status == "failed"
    assert run.why == "no worker is left that could go on"
    assert [r["outcome"] for r in run.trace.to_pylist()].count("lost") == 2


@pytest.mark.parametrize(
    ("budget", "match"),
    [
        ("0updates", "more than 0 updates"),
        ("-3epochs", "must be like 6epochs"),
        ("1.5updates", "whole number"),
        ("soon", "must be like 6epochs"),
        ("5", "needs a unit"),
        (5, "needs a unit"),
        ("accuracy=1.2", "between 0 and 1"),
        ("speed=3", "unknown target metric"),
        ("accuracy=much", "must be like accuracy=0.98"),
    ],
)
def test_a_bad_budget_is_refused_in_one_line(budget, match):
    with pytest.raises(offbeat.ConfigError, match=match) as caught:
        train(budget=budget)
    assert "\n" not in str(caught.value)


def test_epochs_need_a_training_set_and_a_budget_per_worker_needs_samples():
    with pytest.raises(offbeat.ConfigError, match="no training set"):
        train(Quadratic(2), budget="2epochs")
    with pytest.raises(offbeat.ConfigError, match="per worker must be in epochs or samples"):
        Budget(Amount(5, "updates"), per="worker")
    with pytest.raises(offbeat.ConfigError, match="needs an amount"):
        Budget()


# -- evaluations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "updates"),
    [
        ("10updates", [0, 10, 20, 30, 40, 50, 55]),
        ("80samples", [0, 10, 20, 30, 40, 50, 55]),
        ("1epochs", [0, 25, 50, 55]),
        ("0.5epochs", [0, 13, 25, 38, 50, 55]),
        ("1000updates", [0, 55]),
        ("1updates", list(range(56))),
    ],
)
def test_evaluations_are_at_the_start_at_every_mark_and_at_the_end(every, updates):
    run = train(budget="55updates", evaluate_every=every)
    assert column(run, "updates") == updates
    assert column(run, "samples") == [8 * u for u in updates]


def test_an_end_that_was_just_evaluated_is_not_evaluated_twice():
    assert column(train(budget="40updates", evaluate_every="20updates"), "updates") == [0, 20, 40]


def test_the_training_metrics_cover_the_rows_since_the_last_evaluation():
    run = train(budget="60updates", evaluate_every="20updates", machines=cluster(4, compute="exponential(10ms)"))
    rows = [r for r in run.trace.to_pylist() if r["applied"]]
    marks = column(run, "updates")
    for before, after, row in zip(marks, marks[1:], run.metrics.to_pylist()[1:], strict=False):
        part = rows[before:after]
        assert row["train_loss"] == pytest.approx(sum(r["loss"] for r in part) / len(part))
        assert row["train_accuracy"] == pytest.approx(sum(r["correct"] for r in part) / sum(r["samples"] for r in part))
        assert row["staleness"] == pytest.approx(sum(r["staleness"] for r in part) / len(part))
        assert row["grad_norm"] == pytest.approx(sum(r["grad_norm"] for r in part) / len(part))
    assert column(run, "train_loss")[0] is None
    taus = [r["staleness"] for r in rows]
    assert run.summary["mean_staleness"] == pytest.approx(sum(taus) / len(taus))
    assert run.summary["max_staleness"] == max(taus)


def test_held_out_metrics_are_those_of_the_model():
    run = train(budget="50updates")
    x, y = points(60, 1)
    with torch.no_grad():
        out = run.model().eval()(x)
    assert run.summary["accuracy"] == pytest.approx((out.argmax(1) == y).float().mean().item())
    assert run.summary["loss"] == pytest.approx(F.cross_entropy(out, y).item(), rel=1e-6)


# -- targets, patience, the best --------------------------------------------------------------------------------------


def test_the_time_to_a_target_is_that_of_the_first_evaluation_that_reaches_it():
    rows = [{"time": float(t), "accuracy": a, "loss": 1 - (a or 0)} for t, a in enumerate([None, 0.3, 0.8, 0.5, 0.9])]
    assert Target("accuracy", 0.8).time(rows) == 2.0
    assert Target("accuracy", 0.85).time(rows) == 4.0
    assert Target("accuracy", 0.95).time(rows) is None
    assert Target("loss", 0.15).time(rows) == 4.0
    assert Target("loss", 0.7).time(rows) == 1.0


def test_a_target_ends_the_run_at_the_first_evaluation_that_reaches_it():
    task = Scripted(accuracy=[0.1, 0.2, 0.7, 0.75, 0.2])
    run = train(task, budget="accuracy=0.7", evaluate_every="10updates")
    assert run.status == "done"
    assert run.why == "target accuracy=0.7 reached"
    assert column(run, "accuracy") == [0.1, 0.2, 0.7]
    assert run.summary["time_to_target"] == column(run, "time")[-1] == run.summary["virtual_seconds"]
    assert run.summary["target"] == "accuracy=0.7"


def test_a_target_and_an_amount_whichever_comes_first():
    task = Scripted(accuracy=[0.1, 0.2, 0.3])
    budget = Budget(Amount(45, "updates"), Target("accuracy", 0.9))
    run = train(task, budget=budget, evaluate_every="10updates")
    assert run.summary["updates"] == 45
    assert run.why == "budget of 45updates reached"
    assert run.summary["time_to_target"] is None
    task = Scripted(loss=[3.0, 2.0, 0.5])
    run = train(task, budget=Budget(Amount(4000, "updates"), Target("loss", 0.6)), evaluate_every="10updates")
    assert run.why == "target loss=0.6 reached"
    assert len(task.points) == 3


def test_patience_counts_evaluations_without_improvement():
    task = Scripted(accuracy=[0.1, 0.5, 0.6, 0.6, 0.4, 0.55, 0.9])
    run = train(task, budget="1000updates", evaluate_every="10updates", patience=3)
    # Best at the third; an equal value is no improvement.
    assert column(run, "accuracy") == [0.1, 0.5, 0.6, 0.6, 0.4, 0.55]
    assert run.why == "no better accuracy in 3 evaluations"
    assert run.status == "done"


def test_patience_starts_anew_with_every_improvement():
    task = Scripted(loss=[5.0, 6.0, 4.0, 4.5, 3.0, 3.5, 3.5, 3.4])
    run = train(task, budget="1000updates", evaluate_every="10updates", patience=2)
    assert column(run, "loss") == [5.0, 6.0, 4.0, 4.5, 3.0, 3.5, 3.5]
    assert run.why == "no better loss in 2 evaluations"


@pytest.mark.parametrize(
    ("series", "best"),
    [
        ({"accuracy": [0.1, 0.5, 0.9, 0.9, 0.2]}, 2),
        ({"loss": [3.0, 1.0, 2.0, 1.0, 1.5]}, 1),
        ({"accuracy": [0.9, 0.5]}, 0),
        # Accuracy decides where there is one.
        ({"accuracy": [0.1, 0.3, 0.2], "loss": [3.0, 2.0, 1.0]}, 1),
        ({"loss": [3.0, math.nan, 2.0, math.nan]}, 2),
    ],
)
def test_the_best_weights_are_the_point_of_the_best_evaluation(series, best):
    task = Scripted(**series)
    run = train(task, budget="50updates", evaluate_every="10updates", on_divergence="continue")
    assert run.best is not None
    assert torch.equal(run.best.x, task.points[best])
    assert run.summary["best"] == next(iter(series.values()))[best]
    assert len({tuple(p.tolist()) for p in task.points}) > 3, "the points differ"


def test_the_best_weights_survive_in_the_folder_with_their_buffers(tmp_path):
    task = mlp_task(norm=True)
    run = train(task, out=tmp_path / "run", budget="60updates", evaluate_every="5updates")
    accuracy = column(run, "accuracy")
    assert run.summary["best"] == max(accuracy)
    held_out = task.evaluate(run.best, lambda f, items: [f(i) for i in items])
    assert held_out["accuracy"] == max(accuracy)
    assert held_out["loss"] == column(run, "loss")[accuracy.index(max(accuracy))]
    assert run.model(best=True) is not None


def test_the_best_weights_are_kept_only_if_asked_for(tmp_path):
    run = train(out=tmp_path / "run", keep_best=False, budget="30updates")
    assert run.best is None
    assert not (tmp_path / "run" / "best.safetensors").exists()
    with pytest.raises(offbeat.ConfigError, match="keep_best"):
        run.model(best=True)


def test_snapshots_are_saved_so_often_an_epoch_the_initial_point_included(tmp_path):
    run = train(out=tmp_path / "run", budget="2epochs", saves_per_epoch=4)
    files = sorted((tmp_path / "run" / "saves").iterdir())
    assert len(files) == 2 * 4 + 1
    saves = [read_save(tmp_path / "run", f"saves/{f.name}") for f in files]
    # Every 50 samples, at the first gradient of 8 that gets there.
    assert [samples for _, samples in saves] == [0, 56, 104, 152, 200, 256, 304, 352, 400]
    assert torch.equal(saves[0][0], mlp_task().init(0).x)
    assert torch.equal(saves[-1][0], run.params)
    assert len({tuple(x.tolist()) for x, _ in saves}) == 9


def test_callbacks_see_every_applied_row_and_every_evaluation():
    class Seen:
        def __init__(self):
            self.rows, self.metrics = [], []

        def on_apply(self, row):
            self.rows.append(row._asdict())

        def on_evaluation(self, metrics):
            self.metrics.append(metrics)

    seen = Seen()
    run = train(callbacks=[seen], budget="30updates")
    assert seen.rows == [r for r in run.trace.to_pylist() if r["applied"]]
    assert seen.metrics == run.metrics.to_pylist()


# -- divergence -------------------------------------------------------------------------------------------------------


def diverge(lr, workers, task=None, budget="5000updates", **options):
    settings = {k: options.pop(k) for k in ("on_divergence",) if k in options}
    solver = ASGD(partial(torch.optim.SGD, lr=lr, **options))
    return train(task or Quadratic(4), solver, cluster(workers), budget=budget, **settings)


def test_divergence_by_staleness_is_named():
    """lr 1 on curvature 1: stable alone (limit 2), not with 8 workers (limit 0.21)."""
    assert diverge(1.0, 1, budget="200updates").status == "done"
    run = diverge(1.0, 8)
    assert run.status == "diverged"
    assert "learning rate x staleness" in run.why
    assert "the loss went from 0.8898 to " in run.why
    assert run.summary["updates"] < 5000
    assert "\n" not in run.why


def test_divergence_by_momentum_and_staleness_is_named():
    """lr 0.1, mu 0.9: stable alone and, without momentum, with 8 workers."""
    assert diverge(0.1, 1, momentum=0.9, budget="300updates").status == "done"
    assert diverge(0.1, 8, budget="300updates").status == "done"
    run = diverge(0.1, 8, momentum=0.9)
    assert run.status == "diverged"
    assert "momentum 0.9 with mean staleness" in run.why
    nesterov = diverge(0.1, 8, momentum=0.9, nesterov=True)
    assert "Nesterov momentum 0.9" in nesterov.why


def test_divergence_without_staleness_is_named():
    run = diverge(2.5, 1)
    assert run.status == "diverged"
    assert "even without staleness" in run.why
    assert "2.5 is beyond the stability limit 2 " in run.why


def test_an_adaptive_optimizer_that_diverges_is_told_to_lower_its_rate():
    solver = ASGD(partial(torch.optim.Adam, lr=1000.0))
    run = train(Quadratic(4), solver, cluster(4), budget="2000updates")
    assert run.status == "diverged"
    assert "adaptive optimizer" in run.why


def test_a_diverging_run_goes_on_if_asked_to():
    run = diverge(1.0, 8, budget="150updates", on_divergence="continue")
    assert run.status == "diverged"
    assert run.summary["updates"] == 150
    assert "learning rate x staleness" in run.why


def test_divergence_to_nan_is_divergence(tmp_path):
    run = diverge(1.0, 8, budget="9000updates", on_divergence="continue")
    assert not math.isfinite(run.summary["loss"])
    assert run.status == "diverged"


def test_a_spike_is_no_divergence():
    """A loss 50 times the first one is let pass, 1000 times is not."""

    class Spike(Quadratic):
        height = 50.0
        calls = 0

        def gradient(self, point, batch, key):
            g = super().gradient(point, batch, key)
            self.calls += 1
            if self.calls == 10:
                g.loss = self.height
            return g

    task = Spike(2)
    assert train(task, budget="50updates", pool=0).status == "done"
    task = Spike(2)
    task.height = 1000.0
    run = train(task, budget="50updates", pool=0)
    assert run.status == "diverged"
    # The gradient that showed it is in the books, and was not applied.
    assert [r["loss"] for r in run.trace.to_pylist() if r["loss"] == 1000.0 and r["outcome"] == "in flight"] == [1000.0]
    assert run.summary["updates"] == 9


def test_a_diverged_run_has_a_readable_folder(tmp_path):
    solver = ASGD(partial(torch.optim.SGD, lr=1.0))
    run = train(Quadratic(4), solver, cluster(8), budget="5000updates", out=tmp_path / "run")
    again = offbeat.Run.load(tmp_path / "run")
    assert again.status == run.status == "diverged"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["why"] == run.why


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((12, 4), math.nan))

    def forward(self, x):
        return x @ self.w


@pytest.mark.parametrize("test", [None, points(20, 1)], ids=["without a test set", "with one"])
def test_nan_at_the_start_is_an_error_and_no_divergence(test, tmp_path):
    task = offbeat.task(Broken, F.cross_entropy, points(40), test)
    with pytest.raises(offbeat.ConfigError, match="initial parameters") as caught:
        train(task, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2
    if test is None:  # found by the first gradient: the run had begun, and its folder says how it ended
        info = read_description(tmp_path / "run")
        assert (info.status, info.why) == ("failed", str(caught.value))
    else:
        assert not (tmp_path / "run").exists()


def test_a_run_at_chance_level_is_stalled_and_one_that_learns_is_not():
    lame = train(solver=ASGD(partial(torch.optim.SGD, lr=1e-12)), task=constant_task(), budget="20updates")
    assert lame.summary["accuracy"] == pytest.approx(constant_task().chance)
    assert lame.summary["stalled"] is True
    good = train(budget="200updates", solver=ASGD(partial(torch.optim.SGD, lr=0.2)))
    assert good.summary["accuracy"] > 0.6
    assert good.summary["stalled"] is False


def constant_task():
    """A linear model that starts at zero with a bias for the commonest class."""

    def make():
        layer = nn.Linear(12, 4)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        with torch.no_grad():
            layer.bias[points(60, 1)[1].bincount().argmax()] = 1.0
        return layer

    return offbeat.task(make, F.cross_entropy, points(200), points(60, 1))
