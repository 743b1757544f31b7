"""A server in parts: every component is computed as by one server, whatever the method, and what cannot be is said."""

import pytest
import torch

from cases import CASES
from harness import Stop
from offbeat import solvers
from offbeat.core.codec import Codec
from offbeat.core.effects import Call, Gradient, Reply, View
from offbeat.core.errors import ConfigError, RuleError
from offbeat.core.feed import Feed
from offbeat.core.layout import Layout
from offbeat.core.parted import PartedVector, cuts
from offbeat.core.solver import World
from offbeat.core.sparse import dense
from offbeat.engines.cluster import Cluster
from offbeat.engines.ray import shard_messages as s
from offbeat.engines.ray.on_ray import OnRay
from offbeat.engines.ray.ray_options import RayOptions
from offbeat.engines.ray.shard_home import ShardHome
from offbeat.engines.ray.shard_vectors import ShardVectors
from offbeat.engines.real.checkpoint import pack, unpack
from offbeat.engines.running.fit import uncuttable
from offbeat.engines.sim import Sim
from offbeat.lab.catalogue import engines_of
from offbeat.lab.contract.recorder import Bowl
from offbeat.optim.steppers import ELEMENTWISE, optimizer_factory
from offbeat.solvers.asgd import ASGD

CUT = [c for c in CASES if uncuttable(c.make()) is None]
WHOLE = [c for c in CASES if uncuttable(c.make()) is not None]
SGD = optimizer_factory("sgd", lr=0.05)


class Here:
    """Shards without processes."""

    def __init__(self, solver, world, like, count):
        self.codec = Codec(solver.records)
        self.parts = cuts(like.numel(), count)
        self.shards = [ShardVectors(solver, world, self.codec) for _ in self.parts]
        self.told = []

    def tell(self, instruction):
        self.told.append(instruction)
        if not isinstance(instruction, s.TakePush):
            for shard in self.shards:
                shard.carry_out(instruction)

    def put(self, number, x):
        for shard, part in zip(self.shards, self.parts, strict=True):
            shard.vectors[number] = x[part].clone()

    def fetch(self, number):
        return torch.cat([shard.vectors[number] for shard in self.shards])

    def optimizer(self, first):
        told = [shard.optimizer_state(first) for shard in self.shards]
        return told[0]

    def load_optimizer(self, *saved):
        for shard in self.shards:
            shard.load_optimizer(*saved)


class Noted:
    """A solver whose server is listened to: what it was told, and what became of its parameters."""

    def __init__(self, solver):
        self.solver, self.calls = solver, []

    def __getattr__(self, name):
        return getattr(self.solver, name)

    def on_call(self, state, worker, payload):
        effects = list(self.solver.on_call(state, worker, payload))
        replies = [(e.worker, e.value) for e in effects if isinstance(e, Reply)]
        self.calls.append((worker, payload, replies, self.solver.parameters(state, {})))
        return effects


def lodged(home, value):
    """What the server has of a worker's message."""
    if isinstance(value, Gradient):
        made = value.carrying(home.lodge(value.value))
        made.at = home.lodge(value.at)
        return made
    if isinstance(value, tuple):
        return tuple(home.lodge(v) for v in value)
    return value


def vectors_of(value):
    found = value.x if isinstance(value, View) else value
    return None if found is None else dense(found)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("case", CUT, ids=str)
def test_a_server_in_parts_computes_the_same_bits(case, count):
    task = Bowl()
    noted = Noted(case.make())
    sim = Sim(task, noted, Cluster(workers=case.workers), Feed(None, batch=1, workers=case.workers, seed=7), seed=7)
    sim.run(Stop(updates=25).watch(sim))
    sim.close()
    assert noted.calls

    solver, x0 = case.make(), task.init(7).x
    shards = Here(solver, sim.context.world, x0, count)
    home = ShardHome(shards, x0, shards.codec)
    state = solver.init_server(home.lodge(x0), sim.context.world)
    for number, (worker, payload, replies, x) in enumerate(noted.calls):
        if number == len(noted.calls) // 2:  # a checkpoint is that of one server, and can be gone on from
            tree, tensors = pack(shards.codec, solver.save_server(state))
            shards = Here(solver, sim.context.world, x0, count)
            home = ShardHome(shards, x0, shards.codec)
            saved = unpack(shards.codec, tree, tensors, home.lodge)
            state = solver.load_server(saved, home.lodge(x0), sim.context.world)
        effects = list(solver.on_call(state, worker, lodged(home, payload)))
        said = [(e.worker, e.value) for e in effects if isinstance(e, Reply)]
        assert [i for i, _ in said] == [i for i, _ in replies]
        for (_, got), (_, expected) in zip(said, replies, strict=True):
            got, expected = vectors_of(got), vectors_of(expected)
            assert got is expected is None or torch.equal(got, expected)
        now = solver.parameters(state, {})
        assert isinstance(now, PartedVector)
        assert torch.equal(now.dense(), x)


def test_shards_let_go_of_vectors_that_nobody_needs():
    """What is left after many gradients is what the server's state refers to: its point, and what workers were sent."""
    task, solver = Bowl(), solvers.build("dc-asgd", SGD, {"adaptive": True})
    x0, world = task.init(7).x, World(2, task.layout, (0, 1))
    shards = Here(solver, world, x0, 2)
    home = ShardHome(shards, x0, shards.codec)
    state = solver.init_server(home.lodge(x0), world)
    for k in range(50):
        gradient = Gradient(home.lodge(torch.full_like(x0, k / 50)), 0.0, 1)
        gradient.version = state.version
        list(solver.on_call(state, k % 2, gradient))
    del gradient
    state.x + 1.0  # what was let go of is said with the next instruction
    assert all(len(shard.vectors) < 10 for shard in shards.shards)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_every_optimizer_by_component_steps_the_same_in_parts(name, dtype):
    """On vectors whose ends are no multiple of anything."""
    solver = solvers.build("asgd", getattr(torch.optim, name), {})
    n = 1003
    x0 = torch.linspace(-1.0, 1.0, n, dtype=dtype)
    world = World(1, Layout.of([("x", (n,))]), (0,))
    whole, shards = solver.server_optimizer(x0, world), Here(solver, world, x0, 3)
    home = ShardHome(shards, x0, shards.codec)
    parted = solver.server_optimizer(home.lodge(x0), world)
    assert (parted.lr, parted.options) == (whole.lr, whole.options)
    for k in range(4):
        g = torch.randn(n, generator=torch.Generator().manual_seed(k), dtype=dtype)
        assert torch.equal(parted.step(home.lodge(g), 0.7).dense(), whole.step(g, 0.7))


@pytest.mark.parametrize(("size", "count"), [(8, 3), (5, 5), (128, 2), (1003, 4), (1_000_000, 7)])
def test_the_parts_make_up_the_vector_and_begin_where_kernels_do(size, count):
    parts = cuts(size, count)
    assert len(parts) == count
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(size))
    lengths = [part.stop - part.start for part in parts]
    assert max(lengths) - min(lengths) <= (128 if size >= 64 * count else 1)
    assert size < 64 * count or all(part.start % 64 == 0 for part in parts)


# -- what cannot be ----------------------------------------------------------------------------------------------------


def test_nearly_all_methods_with_a_server_can_have_it_in_parts():
    assert {c.solver for c in CUT} >= {"asgd", "sync", "dc-asgd", "gap-aware", "async-momentum", "easgd", "fedbuff"}
    assert {c.solver for c in WHOLE} - {c.solver for c in CUT} >= {"allreduce", "hogwild", "ad-psgd", "local-sgd"}
    assert all(Call in c.make().asks for c in CUT)


@pytest.mark.parametrize(
    ("solver", "why"),
    [
        (solvers.build("asgd", SGD, {"clip": 1.0, "clip_at": "server"}), "norm of the whole vector"),
        (solvers.build("asgd", optimizer_factory("lamb", lr=0.1), {}), "LAMB needs the shapes and norms"),
        (solvers.build("local-sgd", SGD, {}), "not with a server alone"),
        (solvers.build("hogwild", SGD, {}), "not with a server alone"),
    ],
    ids=["clip", "lamb", "local-sgd", "hogwild"],
)
def test_what_needs_whole_vectors_is_refused_with_the_reason(solver, why):
    assert why in uncuttable(solver)
    with pytest.raises(ConfigError, match=why):
        OnRay(
            Bowl(), solver, Cluster(workers=2), Feed(None, batch=1, workers=2, seed=0), seed=0, ray=RayOptions(shards=2)
        )


def test_shards_are_not_reached_through_ray_s_calls():
    ray = RayOptions(shards=2, transport="actor")
    with pytest.raises(ConfigError, match="over sockets of our own"):
        OnRay(Bowl(), ASGD(SGD), Cluster(workers=2), Feed(None, batch=1, workers=2, seed=0), seed=0, ray=ray)


@pytest.mark.parametrize(
    ("what", "name"), [(lambda x: x.norm(), "norm"), (lambda x: torch.dot(x, x), "dot"), (torch.sum, "sum")]
)
def test_a_rule_that_asks_for_more_than_components_is_told_what_it_asked_for(what, name):
    x0 = torch.ones(8)
    solver, world = ASGD(SGD), World(1, Layout.of([("x", (8,))]), (0,))
    shards = Here(solver, world, x0, 2)
    x = ShardHome(shards, x0, shards.codec).lodge(x0)
    with pytest.raises(RuleError, match=f"asks for '{name}' of a vector that lies in parts"):
        what(x)
    with pytest.raises(RuleError, match="takes numbers, not a Tensor"):
        x + x0


def test_the_list_of_solvers_says_why_a_server_cannot_lie_in_parts():
    rows = {row["engine"]: row["runs it"] for row in engines_of("allreduce")}
    assert rows["ray.shards"] == "its parameters are not with a server alone"
    assert {row["engine"]: row["runs it"] for row in engines_of("asgd")}["ray.shards"] == "yes"
