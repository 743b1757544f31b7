"""Sums that workers make among themselves by torch.distributed: their bits, who is lost, and what is refused."""

import os
from pathlib import Path

import pytest
import torch

from circles import Table
from offbeat import solvers
from offbeat.core.errors import ConfigError
from offbeat.core.feed import Feed
from offbeat.core.reduction import mean_of
from offbeat.engines.cluster import Cluster
from offbeat.engines.ray.circles_at_server import teams_of
from offbeat.engines.ray.frames import WrongMessageError
from offbeat.engines.ray.on_ray import OnRay
from offbeat.engines.ray.ray_options import RayOptions
from offbeat.engines.ray.sum_messages import SumEnded, SumUp, Tell
from offbeat.engines.real.gathering import Meeting
from offbeat.engines.real.messages import Reducing
from offbeat.engines.real.transport import RunError
from offbeat.lab.contract.recorder import Bowl
from offbeat.optim.steppers import optimizer_factory

HERE = "127.0.0.1"


@pytest.fixture
def table():
    made = []

    def lay(*machines):
        made.append(Table(machines))
        return made[-1]

    yield lay
    for each in made:
        each.close()


def vectors(n, size=23, dtype=torch.float32):
    """Of very different sizes, so that another order of adding shows."""
    draws = torch.Generator().manual_seed(5)
    return [torch.randn(size, generator=draws, dtype=dtype) * 10.0 ** (3 * k % 7) for k in range(n)]


def test_another_order_would_show():
    a, b, c, *_ = vectors(5)
    assert not torch.equal((a + b) + c, a + (b + c))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weights", [[1.0] * 5, [1.0, 2.0, 1.0, 3.0, 5.0]], ids=["equal", "unequal"])
def test_on_one_machine_or_on_one_each_the_bits_are_those_of_the_sum_in_worker_order(table, weights, dtype):
    given = vectors(5, dtype=dtype)
    for machines in ([HERE] * 5, [f"machine {k}" for k in range(5)]):
        here = table(*machines)
        for _ in range(2):  # also with connections that are there already
            here.reduce(given, weights)
            means, _ = here.means()
            assert all(torch.equal(mean, mean_of(given, weights)) for mean in means)


def test_a_rule_that_asks_for_groups_gets_their_bits_wherever_workers_are(table):
    given = vectors(5)
    here = table("a", "b", "a", "b", "a")
    here.reduce(given, group=2)
    means, _ = here.means()
    assert all(torch.equal(mean, mean_of(given, [1.0] * 5, 2)) for mean in means)


@pytest.mark.parametrize("weights", [[1.0] * 5, [1.0, 2.0, 1.0, 3.0, 5.0]], ids=["equal", "unequal"])
def test_where_some_share_a_machine_they_sum_first(table, weights):
    a, b, c, d, e = given = vectors(5)
    here = table("m", "n", "m", "o", "n")
    here.reduce(given, weights)
    means, _ = here.means()
    if weights[1] != 1.0:
        a, b, c, d, e = (v * n for v, n in zip(given, weights, strict=True))
    expected = (((a + c) + (b + e)) + d) / (5 if weights[1] == 1.0 else 12.0)
    assert all(torch.equal(mean, expected) for mean in means)
    assert not torch.equal(expected, mean_of(given, weights)), "the last bits are others than in worker order"


@pytest.mark.parametrize("machines", [[HERE] * 4, ["m", "m", "n", "n"]], ids=["together", "apart"])
@pytest.mark.parametrize("giver", [0, 2])
def test_who_only_listens_gets_the_giver_s_vector_to_the_bit(table, machines, giver):
    given = vectors(4)
    given[giver][0] = -0.0
    here = table(*machines)
    here.reduce(given, [float(k == giver) for k in range(4)])
    means, _ = here.means()
    assert all(torch.equal(mean.view(torch.int32), given[giver].view(torch.int32)) for mean in means)


def test_if_nobody_gives_anything_there_is_nothing(table):
    here = table(HERE, HERE)
    here.reduce(vectors(2), [0.0, 0.0])
    assert here.means()[0] == [None, None]


def test_whoever_is_lost_in_the_middle_is_done_without(table):
    """The others wait for it in a sum that has begun: theirs is disbanded, and they sum again."""
    given = vectors(3)
    here = table(HERE, HERE, HERE)
    here.reduce(given)
    here.means()
    here.reduce(given)
    here.told[2].clear()  # it never hears of this one
    first = here.obey(0), here.obey(1)
    here.lose(2)
    means, meeting = here.means()
    assert meeting.alive == [0, 1]
    assert all(torch.equal(mean, mean_of(given[:2], [1.0] * 2)) for mean in means)
    assert not any(thread.is_alive() for thread in first)


def test_whoever_is_lost_before_they_are_connected_is_done_without(table):
    given = vectors(3)
    here = table(HERE, HERE, HERE)
    here.reduce(given)
    here.told[0].clear()
    here.obey(1)
    here.lose(0)
    means, meeting = here.means()
    assert meeting.alive == [1, 2]
    assert all(torch.equal(mean, mean_of(given[1:], [1.0] * 2)) for mean in means)


def test_nobody_goes_on_before_all_have_said_that_the_sum_is_made(table):
    here = table(HERE, HERE)
    here.reduce(vectors(2))
    here.server.summed(0, SumEnded(_number(here, 0)))
    assert not here.met
    here.server.summed(0, SumEnded(_number(here, 0)))
    assert not here.met
    here.server.summed(1, SumEnded(_number(here, 0)))
    assert here.met


def test_what_fails_though_nobody_is_lost_is_tried_again_and_then_named(table):
    here = table(HERE, HERE)
    here.reduce(vectors(2))
    circles = set()
    for k in range(3):
        number = _number(here, 0)
        circles.add(here.told[0][-1].circle)
        here.server.summed(0, SumEnded(number, "no route to host"))
        here.server.summed(1, SumEnded(number))
        if k < 2:
            here.server.look()
    assert len(circles) == 3, "each time under another number"
    with pytest.raises(RunError, match="did not make a sum, 3 times: worker 0: no route to host"):
        here.server.look()


def test_whoever_does_not_say_that_it_has_given_up_is_given_up(table):
    here = table(HERE, HERE, HERE)
    here.reduce(vectors(3))
    here.server.summed(0, SumEnded(_number(here, 0), "timed out"))
    here.server.summed(2, SumEnded(_number(here, 0), "timed out"))
    here.until(lambda: here.given_up)
    assert here.given_up == [1]


def _number(here, i):
    return next(m.number for m in reversed(here.told[i]) if isinstance(m, SumUp))


def test_a_note_of_an_outsider_is_refused(table):
    here = table(HERE, HERE, HERE)
    here.lose(2)
    here.reduce(vectors(2))
    with pytest.raises(WrongMessageError, match="a circle that it is not in"):
        here.server.tell(2, Tell(here.told[0][-1].circle, "0", b"here I am"))


def test_a_vector_that_is_not_finite_is_refused(table):
    here = table(HERE)
    with pytest.raises(WrongMessageError, match="not finite"):
        here.server.vet(("float32", False), finite=True)
    here.server.vet(("float32", False), finite=False)
    here.server.vet(None, finite=True)
    with pytest.raises(WrongMessageError, match="a vector of object"):
        here.server.vet(("object", True), finite=True)


def test_vectors_of_different_lengths_are_named(table):
    here = table(HERE, HERE)
    with pytest.raises(RunError, match="different lengths or types: 3 of float32, 4 of float32"):
        here.reduce([torch.zeros(3), torch.zeros(4)])


@pytest.mark.parametrize(
    ("machines", "group", "teams"),
    [
        ("aaaa", None, [[0, 1, 2, 3]]),
        ("abcd", None, [[0, 1, 2, 3]]),
        ("abab", None, [[0, 2], [1, 3]]),
        ("abbc", None, [[0], [1, 2], [3]]),
        ("aabb", 3, [[0, 1, 2], [3]]),
        ("aabb", 1, [[0, 1, 2, 3]]),
    ],
)
def test_teams_are_those_on_one_machine_or_the_rule_s_groups(machines, group, teams):
    asked = [Reducing(1.0, None, group, 5, ("float32", True)) for _ in machines]
    assert teams_of(Meeting([0, 1, 2, 3], asked), dict(enumerate(machines))) == teams


def test_it_listens_on_the_address_that_it_is_given_and_nowhere_else(table):
    before = _listening()
    here = table(HERE, HERE)
    here.reduce(vectors(2))
    here.means()
    new = _listening() - before
    assert new
    assert {address for _, address in new} == {HERE}


def _listening():
    """The sockets of this process that listen: (number, address)."""
    mine = set()
    for fd in Path("/proc/self/fd").iterdir():
        with_target = os.readlink(fd) if fd.is_symlink() else ""
        mine.add(with_target.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in mine:
                host = bytes.fromhex(words[1].split(":")[0])[::-1]
                found.add((words[9], ".".join(map(str, host))))
    return found


# -- what is refused ---------------------------------------------------------------------------------------------------

SGD = optimizer_factory("sgd", lr=0.05)


class Rows(Bowl):
    row_sparse = True


@pytest.mark.parametrize(
    ("name", "options", "task", "why"),
    [
        ("asgd", {}, Bowl(), "it has no effect, as there is no all-reduce in it: leave it out"),
        ("allreduce", {"transport": "actor"}, Bowl(), "gloo opens ports of its own"),
        ("allreduce", {"encryption": "on"}, Bowl(), "gloo does not encrypt"),
        ("allreduce", {}, Rows(), "are rows of a table"),
    ],
    ids=["no all-reduce", "actor", "encryption", "rows"],
)
def test_what_it_does_not_go_with_is_refused_with_the_reason(name, options, task, why):
    rule, feed = solvers.build(name, SGD, {}), Feed(None, batch=1, workers=2, seed=0)
    with pytest.raises(ConfigError, match=f"cannot run with ray.allreduce=gloo: .*{why}"):
        OnRay(task, rule, Cluster(workers=2), feed, seed=0, ray=RayOptions(allreduce="gloo", **options))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ["--solver", "asgd", "--engine", "ray"],
            "the ray engine cannot run asgd: not with ray.allreduce=gloo: it has no",
        ),
        (["--solver", "allreduce"], "ray.allreduce has no effect unless engine is 'ray': leave it out"),
    ],
    ids=["asgd", "sim"],
)
def test_where_it_has_no_effect_it_is_refused_in_one_line(shell, words, why):
    code, _, err = shell("run", "quadratic", "--workers", 2, *words, "--set", "ray.allreduce=gloo")
    assert (code, err.count("\n")) == (2, 1), err
    assert why in err
