"""What a verdict says of groups, that the numbers support it, and that its intervals hold as often as they claim."""

import json
from math import exp, inf, log, sqrt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from folders import make
from offbeat.core.budget import Target
from offbeat.folders.finding import find
from offbeat.report.groups import group
from offbeat.report.intervals import pairs_of
from offbeat.report.pages import several
from offbeat.report.targets import find_target, looked_for, reference, time_to
from offbeat.report.tiers import Measure
from offbeat.report.verdict import judge, verdict

ACCURACY = Measure("accuracy", lambda r: r.summary.get("accuracy"), True)
GOAL = Target.parse("accuracy=0.9")
TIME = Measure(
    "time to accuracy=0.9",
    lambda r: time_to(r, GOAL),
    higher=False,
    unit=" s",
    ratio=True,
    bound=lambda r: looked_for(r, GOAL),
)


def ending(tmp_path, **by_solver):
    """Groups whose runs, one a seed, ended with these accuracies."""
    for solver, finals in by_solver.items():
        for seed, final in enumerate(finals):
            make(tmp_path / f"{solver}-{seed}", solver=solver, seed=seed, accuracy=(0.1, final))
    return group(find([tmp_path]))


def arriving(tmp_path, **by_solver):
    """Groups whose runs reached 0.9 after so many seconds; negative: a run that had so long and missed it."""
    for solver, times in by_solver.items():
        for seed, time in enumerate(times):
            curve = (0.1, 0.9) if time > 0 else (0.1, 0.8)
            make(tmp_path / f"{solver}-{seed}", solver=solver, seed=seed, accuracy=curve, seconds=abs(time))
    return group(find([tmp_path]))


def names(entries):
    return [e.group.name for e in entries]


def placed(found):
    """The tiers by name: first and level, behind, undecided."""
    t = found.tiers
    return [t.leader.group.name, *names(t.level)], *(names(g.entry for g in part) for part in (t.behind, t.undecided))


# -- the intervals ----------------------------------------------------------------------------------------------


def test_two_groups_get_the_paired_t_interval():
    """Student's own sleep data (1908): the gain by one drug over the other, 95% from 0.70 to 2.46 hours."""
    one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = pairs_of(np.array([two, one])).between(0, 1)
    assert found.estimate == pytest.approx(1.58)
    assert (found.low, found.high) == (pytest.approx(0.7001, abs=1e-4), pytest.approx(2.4599, abs=1e-4))


def test_several_groups_share_their_scatter_as_in_a_block_design():
    """By hand: residuals ±1 in three groups and two seeds; t(2 degrees, 1 - 0.05 / 6) is 7.6488 (tables)."""
    values = np.array([[0.0, 2.0], [10.0, 10.0], [20.0, 20.0]])
    # Seeds differ by 2/3 in the mean; residuals are ±2/3, ±1/3, ±1/3, their squares sum to 4/3, over 2 degrees.
    found = pairs_of(values)
    pooled = 2 * (4 / 3) / 2
    assert found.half[1, 2] == pytest.approx(7.6488 * sqrt(pooled / 2), rel=1e-4)  # the pair itself does not scatter
    assert found.half[0, 1] == pytest.approx(7.6488 * sqrt(2.0 / 2), rel=1e-4)  # it does more than the mean pair


def test_a_bound_opens_the_interval_on_its_side_and_lends_its_scatter_to_nobody():
    complete = np.array([[0.0, 0.1, 0.0], [1.0, 1.0, 1.1]])
    found = pairs_of(np.vstack([complete, [5.0, 9.0, 7.0]]), np.array([False, False, True]))
    assert found.between(2, 0).high == inf
    assert found.between(0, 2).low == -inf
    assert found.above(2, 0) == (found.between(2, 0).low > 0)
    alone = pairs_of(complete)
    # Three pairs instead of one widen it (t of 2 degrees: 7.649 for 4.303), the bounds do not.
    assert found.half[0, 1] == pytest.approx(alone.half[0, 1] * 7.6488 / 4.3027, rel=1e-4)


def joint_coverage(draw, widths, seeds, repetitions=4000):
    """How often all intervals hold together, seeds having effects of their own and groups being equal in truth."""
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(repetitions):
        values = draw(rng, (len(widths), seeds)) * np.array(widths)[:, None] + rng.normal(0, 3, seeds)
        found = pairs_of(values)
        hits += bool((np.abs(found.means[:, None] - found.means) <= found.half).all())
    return hits / repetitions


def normal(rng, shape):
    return rng.normal(size=shape)


NOISE = 4 * sqrt(0.95 * 0.05 / 4000)
"""Four standard deviations of a share of 0.95 among 4,000: chance passes it once in 30,000 tests."""


@pytest.mark.parametrize(("groups", "seeds"), [(2, 3), (3, 3), (6, 3), (6, 5), (10, 3), (3, 2)])
def test_all_intervals_hold_together_95_times_in_100(groups, seeds):
    found = joint_coverage(normal, [1.0] * groups, seeds)
    assert found > 0.95 - NOISE
    if groups == 2:
        assert found < 0.95 + NOISE  # exact, not only safe


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, shape: rng.exponential(size=shape),
        lambda rng, shape: rng.laplace(size=shape),
        lambda rng, shape: np.round(rng.normal(size=shape)),
    ],
    ids=["skewed", "heavy tails", "rounded"],
)
def test_they_hold_as_often_when_the_scatter_is_not_normal(draw):
    assert joint_coverage(draw, [1.0] * 6, 3) > 0.95 - NOISE


def test_one_group_that_scatters_ten_times_as_much_costs_five_in_a_hundred_and_no_more():
    assert joint_coverage(normal, [10.0, *[1.0] * 5], 3) > 0.90 - NOISE


def test_who_is_truly_first_is_called_behind_less_than_1_time_in_40(tmp_path):
    """Whoever is the leader is picked after the fact: that may not cost more than the docstring says."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(4000):
        found = pairs_of(rng.normal(size=(6, 3)))
        leader = int(np.argmin(found.means))
        wrong += found.above(0, leader)  # all are first in truth; ask after one of them
    assert wrong / 4000 < 1 / 40 + 4 * sqrt(1 / 40 * 39 / 40 / 4000)


# -- tiers ------------------------------------------------------------------------------------------------------


def test_two_are_level_and_the_third_is_behind_by_a_factor_with_an_interval(tmp_path):
    groups = arriving(tmp_path, asgd=[1.0, 1.2, 1.1], dcasgd=[1.01, 1.19, 1.11], sync=[1.8, 2.2, 1.95])
    found = judge(groups, TIME)
    assert placed(found) == (["asgd", "dcasgd"], ["sync"], [])
    assert found.winner is None
    (gap,) = found.tiers.behind
    ratios = np.array([1.8, 2.2 / 1.2, 1.95 / 1.1])
    assert gap.size == pytest.approx(exp(np.log(ratios).mean()))
    assert 1.5 < gap.low < gap.size < gap.high < 2.1
    shown = f"[{gap.low:.2f} to {gap.high:.2f}]"
    assert found.sentences == [
        "asgd and dcasgd are level in time to accuracy=0.9 (1.1 s and 1.1 s): "
        f"sync needs 1.80 times as long as asgd {shown}."
    ]


def test_who_is_first_alone_is_named(tmp_path):
    found = judge(arriving(tmp_path, asgd=[1.0, 1.2, 1.1], sync=[1.8, 2.2, 1.95], plain=[4.0, 4.6, 4.5]), TIME)
    assert placed(found) == (["asgd"], ["sync", "plain"], [])
    assert found.winner.solver == "asgd"
    assert found.sentences[0].startswith(
        "asgd is first in time to accuracy=0.9 (1.1 s): sync needs 1.80 times as long ["
    )
    assert "] and plain 3.9" in found.sentences[0]


def test_three_can_be_level(tmp_path):
    times = {"asgd": [1.0, 1.2, 1.1], "ssp": [1.02, 1.18, 1.1], "dcasgd": [1.01, 1.19, 1.12], "sync": [2.0, 2.4, 2.2]}
    found = judge(arriving(tmp_path, **times), TIME)
    assert sorted(placed(found)[0]) == ["asgd", "dcasgd", "ssp"]
    assert placed(found)[1:] == (["sync"], [])
    assert " are level in " in found.sentences[0]


def test_who_is_told_apart_from_neither_side_is_undecided_and_not_called_level(tmp_path):
    times = {"asgd": [1.0, 1.0, 1.0], "backup": [1.0, 1.6, 1.3], "sync": [2.0, 1.9, 2.1]}
    found = judge(arriving(tmp_path, **times), TIME)
    assert placed(found) == (["asgd"], ["sync"], ["backup"])
    assert found.winner is None
    assert found.sentences[0].startswith("asgd has the best mean in time to accuracy=0.9 (1 s): sync needs 2.00 times")
    assert found.sentences[1].startswith("Undecided: backup needs 1.28 times as long as asgd [0.")


def test_noisy_times_decide_nothing(tmp_path):
    found = judge(arriving(tmp_path, asgd=[1.0, 2.0, 1.5], sync=[2.5, 1.4, 2.0], plain=[1.2, 3.0, 2.0]), TIME)
    assert found.tiers.behind == []
    assert found.tiers.level == []
    assert found.winner is None
    assert found.sentences[0].startswith(
        "No winner in time to accuracy=0.9: asgd has the best mean (1.5 s), but nobody"
    )
    assert "level" not in found.sentences[0]


def test_a_seed_that_is_hard_for_everybody_hides_nothing(tmp_path):
    """Unpaired, the spread over seeds (a factor of 3) would hide a lead of 10%."""
    seeds = np.array([1.0, 2.0, 3.0])
    found = judge(arriving(tmp_path, asgd=seeds, sync=1.1 * seeds * [1.0, 1.005, 0.995]), TIME)
    assert found.winner.solver == "asgd"
    assert found.tiers.behind[0].size == pytest.approx(1.1, rel=1e-3)


def test_equal_values_have_no_winner_however_exact(tmp_path):
    found = judge(arriving(tmp_path, asgd=[0.1, 0.3, 0.7], sync=[0.1, 0.3, 0.7], ssp=[0.1, 0.3, 0.7]), TIME)
    assert found.winner is None
    assert found.sentences == ["No winner in time to accuracy=0.9: asgd, ssp and sync are equal in every seed."]


def test_a_constant_factor_is_a_difference(tmp_path):
    found = judge(arriving(tmp_path, asgd=[0.1, 0.3, 0.7], sync=[0.3, 0.9, 2.1]), TIME)
    assert found.winner.solver == "asgd"
    assert "sync needs 3.00 times as long [3.00 to 3.00]" in found.sentences[0]


def test_one_seed_each_gives_no_winner(tmp_path):
    found = judge(arriving(tmp_path, asgd=[1.0], sync=[9.0]), TIME)
    assert found.winner is None
    assert found.sentences == [
        "No winner in time to accuracy=0.9: asgd has the best mean (1 s), but one seed each gives no interval."
    ]


def test_groups_without_a_common_seed_are_not_compared(tmp_path):
    make(tmp_path / "a", solver="asgd", seed=0)
    make(tmp_path / "b", solver="sync", seed=1)
    found = judge(group(find([tmp_path])), ACCURACY)
    assert found.winner is None
    assert "no seed in common" in found.sentences[0]


def test_only_seeds_that_all_have_are_compared(tmp_path):
    for seed, time in enumerate([1.0, 1.2, 1.1, 50.0]):
        make(tmp_path / f"a{seed}", solver="asgd", seed=seed, seconds=time)
    for seed, time in enumerate([2.0, 2.4, 2.3]):
        make(tmp_path / f"s{seed}", solver="sync", seed=seed, seconds=time)
    found = judge(group(find([tmp_path])), TIME)
    assert found.tiers.seeds == 3
    assert found.winner.solver == "asgd"


# -- runs that missed the target, diverged or failed ------------------------------------------------------------


def test_a_run_that_missed_the_target_makes_its_group_late_by_at_least_so_much(tmp_path):
    times = {"asgd": [1.0, 1.1, 1.05], "sync": [2.0, 2.1, 2.15], "plain": [4.0, -4.2, 3.9]}
    found = judge(arriving(tmp_path, **times), TIME)
    assert placed(found) == (["asgd"], ["sync", "plain"], [])
    gap = found.tiers.behind[-1]
    assert gap.high == inf
    assert 3 < gap.low < 3.9
    assert f"plain missed it in 1 of 3 seeds and needs at least {gap.low:.2f} times" in found.sentences[0]


def test_the_bound_is_one_whatever_the_missed_run_would_have_needed(tmp_path):
    """With the true times in place of the bounds the estimate can only grow."""
    bounded = judge(arriving(tmp_path / "1", asgd=[1.0, 1.1, 1.05], sync=[2.0, 2.2, 2.1], plain=[4, -4.2, 3.9]), TIME)
    known = judge(arriving(tmp_path / "2", asgd=[1.0, 1.1, 1.05], sync=[2.0, 2.2, 2.1], plain=[4, 9.0, 3.9]), TIME)
    assert bounded.tiers.behind[-1].low < bounded.tiers.behind[-1].size < known.tiers.behind[-1].size


def test_who_missed_the_target_is_neither_first_nor_level_however_quick_otherwise(tmp_path):
    found = judge(arriving(tmp_path, asgd=[0.5, -0.6, 0.5], ssp=[1.0, 1.1, 1.05], sync=[2.0, 2.2, 2.1]), TIME)
    assert placed(found) == (["ssp"], ["sync"], ["asgd"])
    assert found.winner is None
    assert found.sentences[1] == "Undecided: asgd missed it in 1 of 3 seeds."


def test_who_alone_reached_the_target_is_said_to_have(tmp_path):
    found = judge(arriving(tmp_path, asgd=[1.0, 1.1, 1.2], sync=[-3.0, 2.0, -3.0], plain=[-3.0, -3.0, -3.0]), TIME)
    assert found.winner is None
    assert found.sentences == [
        "Only asgd has a value for every seed in time to accuracy=0.9 (1.1 s): "
        "sync missed it in 2 of 3 seeds and plain missed it in 3 of 3 seeds."
    ]


def test_where_nobody_reached_the_target_nobody_wins(tmp_path):
    found = judge(arriving(tmp_path, asgd=[-1.0, 1.0], sync=[-1.0, -1.0]), TIME)
    assert found.tiers.leader is None
    assert found.sentences[0].startswith("No winner in time to accuracy=0.9: no group has a value for every seed: asgd")


def test_a_group_with_a_diverged_run_is_left_out_and_named(tmp_path):
    for seed in range(3):
        status = "diverged" if seed else "done"
        make(tmp_path / f"a{seed}", solver="asgd", seed=seed, accuracy=(0.1, 0.99), status=status)
        make(tmp_path / f"b{seed}", solver="sync", seed=seed, accuracy=(0.1, 0.8 + seed / 1000))
        make(tmp_path / f"c{seed}", solver="easgd", seed=seed, accuracy=(0.1, 0.7))
    found = judge(group(find([tmp_path])), ACCURACY)
    assert found.winner.solver == "sync"
    assert found.sentences[-1] == "Left out: asgd (2 of 3 diverged)."


# -- scores, and the page's words -------------------------------------------------------------------------------


def test_scores_are_compared_by_difference(tmp_path):
    found = judge(ending(tmp_path, asgd=[0.90, 0.80, 0.70], sync=[0.85, 0.75, 0.651]), ACCURACY)
    assert found.winner.solver == "asgd"
    assert found.tiers.behind[0].size == pytest.approx(0.04967, abs=1e-5)
    assert "asgd is first in accuracy (0.8): sync is 0.0497 lower [0.0" in found.sentences[0]


def test_a_score_without_a_difference_has_no_winner(tmp_path):
    found = judge(ending(tmp_path, asgd=[0.90, 0.80, 0.85, 0.7], sync=[0.80, 0.90, 0.84, 0.7]), ACCURACY)
    assert found.winner is None
    assert "sync is 0.0025 lower [−0.1" in found.sentences[0]


def test_of_many_groups_a_few_are_spelled_out(tmp_path):
    times = {f"s{i}": [1.0 + i, (1.0 + i) * 1.1, (1.0 + i) * 1.2] for i in range(12)}
    found = judge(arriving(tmp_path, **times), TIME)
    assert len(found.tiers.behind) == 11
    assert "7 more likewise" in found.sentences[0]


def test_a_verdict_begins_with_the_time_to_a_target_that_was_set(tmp_path):
    groups = arriving(tmp_path, asgd=[1.0, 1.2, 1.1], sync=[1.8, 2.2, 1.95])
    said = verdict(groups, *find_target(groups, "accuracy=0.9")[:2])
    assert said[0].startswith("asgd is first in virtual time to accuracy=0.9 (1.1 s): sync needs 1.80 times as long [")
    assert said[1] == "No winner in final held-out accuracy: asgd and sync are equal in every seed."
    assert said[-1].startswith("Compared seed by seed")
    afterwards = verdict(groups, *find_target(groups, None)[:2])  # nobody set one: it was found by looking
    assert not any("time to" in s for s in afterwards)


def test_speed_up_is_over_plain_where_all_of_its_seeds_got_there_and_else_over_the_first_row_that_did():
    solvers = ["sync", "plain", "asgd"]
    assert reference(solvers, [[2.0, 2.1], [4.0, 4.1], [1.0, 1.1]]) == 1
    assert reference(solvers, [[2.0, 2.1], [4.0, None], [1.0, 1.1]]) == 0
    assert reference(solvers, [[2.0, None], [4.0, None], [1.0, 1.1]]) == 2
    assert reference(solvers, [[None], [None], [None]]) is None
    assert reference([], []) is None


def test_a_missed_run_had_until_its_last_evaluation(tmp_path):
    (run,) = find([make(tmp_path / "a", accuracy=(0.1, 0.5, 0.7), seconds=4.0)])
    assert looked_for(run, GOAL) == 4.0
    assert log(looked_for(run, GOAL)) > 0


def of_losses(tmp_path, *losses, chance=None, accuracy=None):
    """Groups of one run each that had these losses, and accuracies where they are given."""
    for k, values in enumerate(losses):
        path = make(tmp_path / f"r{k}", lr=0.1 * (k + 1), accuracy=accuracy or [0.0] * len(values))
        table = pq.read_table(path / "metrics.parquet").drop_columns(["loss"] + ["accuracy"] * (accuracy is None))
        pq.write_table(table.append_column("loss", pa.array(values)), path / "metrics.parquet")
        info = json.loads((path / "run.json").read_text())
        info["task"]["chance"] = chance
        (path / "run.json").write_text(json.dumps(info))
    return group(find([tmp_path]))


def test_a_target_found_by_looking_is_reached_by_those_who_define_it(tmp_path):
    # To three digits, 4.044 is 4.04, which neither run reached.
    groups = of_losses(tmp_path, [8.0, 5.0, 4.044], [8.0, 5.0, 3.9])
    found = find_target(groups, None)
    assert str(found.target) == "loss=4.05"
    assert [time_to(r, found.target) for g in groups for r in g.runs] == [3.0, 3.0]


@pytest.mark.parametrize("worst", [*np.random.default_rng(0).uniform(1e-4, 0.9, 25), 0.57, 0.29, 1 / 3])
def test_rounding_moves_no_target_past_the_run_that_came_least_far(tmp_path, worst):
    losses = of_losses(tmp_path / "loss", [1.0, worst], [1.0, worst / 2])
    assert find_target(losses, None).target.reached(worst)
    accuracies = of_losses(tmp_path / "accuracy", [1.0, 0.5], chance=0.0, accuracy=[0.0, worst])
    target = find_target(accuracies, None).target
    assert target is None if worst < 0.1 else target.reached(worst)


def test_what_guessing_gives_is_no_target_and_the_page_says_why(tmp_path):
    # Ten classes: some run names one class always (accuracy 0.1, loss ln 10), which falls from a worse start.
    groups = of_losses(tmp_path, [2.9, log(10) + 0.001], [2.9, log(10)], chance=0.1, accuracy=[0.08, 0.11])
    found = find_target(groups, None)
    assert found.target is None
    assert "the best accuracy that every finished run reached, 0.11, is not clearly better than the 0.1" in found.why
    assert found.why in several.page([r for g in groups for r in g.runs]).html()


def test_a_loss_that_hardly_fell_is_no_target(tmp_path):
    found = find_target(of_losses(tmp_path, [2.31, log(10)], [2.31, 1.2]), None)
    assert found.target is None
    assert "the best loss that every finished run reached, 2.3, is not clearly better than the 2.31" in found.why
