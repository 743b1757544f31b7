"""Messages between machines: nobody without the key makes, repeats, reorders or cuts one."""

from threading import Event, Thread

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness import mlp_task
from offbeat.core.effects import Gradient
from offbeat.core.feed import Feed
from offbeat.core.sparse import RowSparse
from offbeat.engines.cluster import Cluster
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray import wire
from offbeat.engines.ray.frames import Frames, WrongMessageError
from offbeat.engines.ray.host_clock import Alignment, kernel_id
from offbeat.engines.ray.near_sockets import NearPeer, NearServer
from offbeat.engines.ray.ray_hub import RayHub
from offbeat.engines.ray.ray_port import RayPort
from offbeat.engines.ray.remote_board import RemoteBoard, row_of, set_row
from offbeat.engines.ray.sockets import ZmqPeer, ZmqServer
from offbeat.engines.ray.vetting import vet
from offbeat.engines.ray.wire import Letters, identity_of, key_of, sender_of
from offbeat.engines.real import messages as m
from offbeat.engines.real.mail import Mail
from offbeat.engines.real.site import Options, Setup, Site
from offbeat.engines.real.transport import Came, Said, WentAway
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers.asgd import ASGD

SECRET = b"s" * 32


def pair(key=b"k" * 32, worker=3, life=2):
    worker_side = Letters(key, worker, life, r.HeardByWorker, to_server=True)
    return worker_side, Letters(key, worker, life, r.HeardByServer, to_server=False)


def test_a_message_arrives_as_it_was_sent():
    worker, server = pair()
    frames = []
    parts = Frames().write(
        frames, {"g": torch.arange(6.0).reshape(2, 3), "empty": torch.zeros(0), "n": torch.tensor(7)}
    )
    sealed = worker.seal(m.Called(("tree", parts), 1.5, 24, [1, 2]), frames, row=([1], [2.0]))
    envelope, message, tensors = server.open(sealed)
    assert (envelope.worker, envelope.life, envelope.row) == (3, 2, ([1], [2.0]))
    assert (message.sent, message.size, message.works) == (1.5, 24, [1, 2])
    found = Frames().read(tensors, message.payload[1])
    assert torch.equal(found["g"], torch.arange(6.0).reshape(2, 3))
    assert found["empty"].shape == (0,)
    assert found["n"] == 7


@given(st.integers(0, 200), st.integers(1, 255))
def test_a_changed_byte_is_noticed(at, by):
    worker, server = pair()
    head = bytearray(worker.seal(m.Suspicious(0.25), row=([1, 2, 3], [1.0]))[0])
    head[at % len(head)] ^= by
    with pytest.raises(WrongMessageError, match="not authentic"):
        server.open([bytes(head)])


def test_another_key_is_no_key():
    worker, _ = pair(b"a" * 32)
    _, server = pair(b"b" * 32)
    with pytest.raises(WrongMessageError, match="not authentic"):
        server.open(worker.seal(m.Left()))


def test_a_message_counts_once_and_in_order():
    worker, server = pair()
    first, second, third = (worker.seal(m.WaitsForPeer(k)) for k in range(3))
    server.open(first)
    with pytest.raises(WrongMessageError, match="number 1 where 2 is due"):
        server.open(first)
    with pytest.raises(WrongMessageError, match="number 3 where 2 is due"):
        server.open(third)
    assert server.open(second)[1] == m.WaitsForPeer(1)


def test_a_message_that_comes_back_is_no_message():
    worker, _ = pair()
    reader = Letters(b"k" * 32, 3, 2, r.HeardByServer, to_server=True)
    with pytest.raises(WrongMessageError, match="not authentic"):
        reader.open(worker.seal(m.Left()))


def test_a_message_of_an_earlier_life_is_refused():
    old, new = Letters(b"k" * 32, 3, 1, r.HeardByWorker, to_server=True), pair()[1]
    with pytest.raises(WrongMessageError, match="life 1 of worker 3"):
        new.open(old.seal(m.Left()))


@pytest.mark.parametrize("frames", [[b""], [b"abc", b"d"], []])
def test_frames_of_other_lengths_are_refused(frames):
    worker, server = pair()
    sealed = worker.seal(m.Left(), [b"abc"])
    with pytest.raises(WrongMessageError, match="frames are not as long"):
        server.open([sealed[0], *frames])


@pytest.mark.parametrize(
    "part",
    [("x", 0, "float32", (3,)), ("x", 1, "float32", (2,)), ("x", 0, "object", (2,)), ("x", 0, "float32", (-1, -2))],
    ids=["too long", "no such frame", "no such type", "no such shape"],
)
def test_tensors_that_are_not_there_are_refused(part):
    with pytest.raises(WrongMessageError):
        Frames().read([torch.ones(2).numpy().data], [part])


def test_a_tensor_is_ours_and_aligned():
    raw = b"x" + torch.arange(100.0).numpy().tobytes()  # one byte off, as in the middle of a buffer
    (found,) = Frames().read([memoryview(raw)[1:]], [("x", 0, "float32", (100,))]).values()
    assert found.data_ptr() % 16 == 0
    assert torch.equal(found, torch.arange(100.0))


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(wire, "PART", 10)


@given(st.lists(st.integers(0, 45), min_size=1, max_size=4))
def test_a_long_message_arrives_in_parts_as_it_was_sent(lengths):
    """However its tensors are cut: only what is complete is a message."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "PART", 10)
        worker, server = pair()
        tensors = [bytes(range(k, k + n)) for k, n in enumerate(lengths)]
        sent = []
        worker.post(sent.append, m.WaitsForPeer(7), [memoryview(t) for t in tensors], row=([1], [2.0]))
        assert len(sent) == (1 if sum(lengths) <= 10 else 1 + sum(-(-n // 10) for n in lengths))
        *first, last = [server.open(frames) for frames in sent]
        assert first == [None] * (len(sent) - 1)
        envelope, message, found = last
        assert (message, envelope.row) == (m.WaitsForPeer(7), ([1], [2.0]))
        assert [bytes(t) for t in found] == tensors


def test_a_vector_that_came_in_parts_is_not_copied_again(small_parts):
    worker, server = pair()
    frames, x = [], torch.arange(20.0)
    parts = Frames().write(frames, {"x": x})
    sent = []
    worker.post(sent.append, m.Called(("tree", parts), 0.0, 80, []), frames)
    *_, (_, message, tensors) = [server.open(f) for f in sent]
    (found,) = Frames().read(tensors, message.payload[1]).values()
    assert torch.equal(found, x)
    assert found.data_ptr() == tensors[0].ctypes.data
    assert found.data_ptr() % 64 == 0


def test_parts_come_in_order_and_all_of_them(small_parts):
    worker, server = pair()
    sent = []
    worker.post(sent.append, m.Left(), [b"x" * 25])
    server.open(sent[0])
    with pytest.raises(WrongMessageError, match="number 3 where 2 is due"):
        server.open(sent[2])
    server.open(sent[1])
    server.open(sent[2])
    assert server.open(sent[3])[1] == m.Left()


def test_nothing_comes_between_parts(small_parts):
    worker, server = pair()
    sent = []
    worker.post(sent.append, m.Left(), [b"x" * 25])
    server.open(sent[0])
    worker._sent = 1
    with pytest.raises(WrongMessageError, match="before the last part"):
        server.open(worker.seal(m.WaitsForPeer(1)))


def test_a_part_of_nothing_and_parts_that_are_too_long_are_refused(small_parts):
    worker, server = pair()
    with pytest.raises(WrongMessageError, match="part of nothing"):
        server.open(worker.seal(r.NextPart(), [b"x"]))
    worker.post(lambda frames: server.open(frames) if len(frames) == 1 else None, m.Left(), [b"x" * 25])
    worker._sent = server._received
    with pytest.raises(WrongMessageError, match="parts are not as long"):
        server.open(worker.seal(r.NextPart(), [b"x" * 26]))


X0 = torch.zeros(4)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (Gradient(torch.zeros(5), 0.5, 1), "shape"),
        (Gradient(torch.zeros(4, dtype=torch.float64), 0.5, 1), "float64"),
        (Gradient(torch.tensor([0.0, 1.0, float("nan"), 0.0]), 0.5, 1), "not finite"),
        (Gradient(RowSparse(torch.tensor([0, 9]), torch.zeros(2, 2), (2, 2)), 0.5, 1), "rows that there are not"),
        (Gradient(RowSparse(torch.tensor([0]), torch.zeros(2, 2), (2, 2)), 0.5, 1), "do not match"),
        ([torch.tensor([float("inf")])], "not finite"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_does_not_fit_does_not_touch_parameters(payload, why):
    with pytest.raises(WrongMessageError, match=why):
        vet(payload, X0, finite=True)


def test_a_run_that_may_diverge_may_send_what_is_not_finite():
    vet(Gradient(torch.full((4,), float("inf")), 0.5, 1), X0, finite=False)


@given(st.integers(-(10**15), 10**15), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**15))
def test_a_clock_is_known_within_the_error_that_is_said(offset, there, back, now):
    """Whatever the two ways take: the truth lies within the error of what is learned."""
    alignment = Alignment()
    asked, arrived = now + offset, now + there + back + offset
    alignment.learn(asked, now + there, arrived)
    assert abs(alignment.offset_ns - offset) <= alignment.error_ns + 1


def test_the_quickest_answer_counts():
    alignment = Alignment()
    alignment.learn(0, 60, 100)
    alignment.learn(1000, 1005, 1010)
    alignment.learn(2000, 2090, 2100)
    assert (alignment.offset_ns, alignment.error_ns) == (0, 5)


# -- the server's socket -----------------------------------------------------------------------------------------------


@pytest.fixture
def site():
    task = mlp_task()
    feed = Feed(task.size, batch=8, workers=2, seed=3)
    setup = Setup(ASGD(optimizer_factory("sgd", lr=0.05)), Cluster(workers=2), feed, 3, Options(), task)
    initial = task.init(3)
    board = RemoteBoard(2, initial.x)
    return Site(setup, task, initial, board)


@pytest.fixture(params=["in the clear", "encrypted", "on one machine"])
def server(request):
    made = ZmqServer("127.0.0.1", request.param == "encrypted", 1 << 20)
    if request.param == "on one machine":
        made = NearServer(made)
    yield made
    made.close()


def connected(server, identity):
    return (
        NearPeer(server.name, identity)
        if isinstance(server, NearServer)
        else ZmqPeer(server.address, identity, 1 << 20)
    )


@pytest.fixture
def hub(site, server):
    return RayHub(site, site.board, server, SECRET, 1, Event())


class FakeWorker:
    """A worker's end, by hand."""

    def __init__(self, server, rank=0, life=1, secret=SECRET):
        self.letters = Letters(key_of(secret, rank, life), rank, life, r.HeardByWorker, to_server=True)
        self.socket = connected(server, identity_of(secret, rank, life))

    def say(self, message, frames=(), row=None):
        self.socket.send(self.letters.seal(message, list(frames), row=row))

    def hears(self):
        frames = self.socket.receive(5.0)
        return None if frames is None else self.letters.open(frames)[1]


def heard(hub):
    """The next thing that is heard, with time for it to arrive."""
    return hub.next(5.0)


def row(site, draws):
    scratch = RemoteBoard(2, site.initial.x)
    scratch.draws[0] = draws
    return row_of(scratch, 0)


def test_a_worker_is_welcomed_and_heard(hub, server, site):
    worker = FakeWorker(server)
    set_row(site.board, 0, row(site, 5))
    worker.say(r.Hello("joins"))
    came = heard(hub)
    assert isinstance(came, Came)
    assert (came.worker, came.how) == (0, "joins")
    assert worker.hears().row == row(site, 5), "a worker goes on where its last life ended"
    frames, g = [], Gradient(torch.ones_like(site.initial.x), 0.5, 8, at=site.initial.x, version=0)
    packed = Mail(site.codec, Frames()).pack(g, frames, {"x0": site.initial.x})
    worker.say(m.Called(packed, 0.0, 1, []), frames, row(site, 6))
    said = heard(hub)
    assert isinstance(said, Said)
    assert torch.equal(said.message.payload.value, g.value)
    assert said.message.payload.at is site.initial.x, "what both have is named, and not sent"
    assert site.board.draws[0] == 6
    worker.socket.close()


def test_a_greeting_that_is_answered_twice_is_answered_once(server, site):
    """Also where the second answer comes while the worker stands still."""
    letters = Letters(key_of(SECRET, 0, 1), 0, 1, r.HeardByServer, to_server=False)
    identity = identity_of(SECRET, 0, 1)
    mine = Letters(key_of(SECRET, 0, 1), 0, 1, r.HeardByWorker, to_server=True)
    port = RayPort(site, RemoteBoard(2, site.initial.x), 0, connected(server, identity), mine, Event())
    welcome = r.Welcome(row(site, 0), None, kernel_id())
    said = [welcome, r.Stand(), welcome, r.Resume(), welcome, m.Start()]

    def serve():
        server.receive(5.0)
        for message in said:
            server.send(identity, letters.seal(message))
        while server.receive(0.2) is not None:
            pass

    serving = Thread(target=serve)
    serving.start()
    port.greet("begins")
    assert isinstance(port.receive(5.0), m.Start)
    serving.join()
    port._socket.close()


def test_a_long_gradient_comes_in_parts_and_others_are_heard_between_them(hub, server, site, small_parts):
    one, other = FakeWorker(server), FakeWorker(server, rank=1)
    for worker in (one, other):
        worker.say(r.Hello("begins"))
        assert isinstance(heard(hub), Came)
    frames, g = [], Gradient(torch.rand_like(site.initial.x), 0.5, 8, at=site.initial.x, version=0)
    packed = Mail(site.codec, Frames()).pack(g, frames, {"x0": site.initial.x})
    parts = []
    one.letters.post(parts.append, m.Called(packed, 0.0, 1, []), frames)
    assert len(parts) > 20
    for part in parts[:-1]:
        one.socket.send(part)
    other.say(m.Suspicious(0.5))
    said = heard(hub)
    assert (said.worker, said.message) == (1, m.Suspicious(0.5))
    one.socket.send(parts[-1])
    said = heard(hub)
    assert torch.equal(said.message.payload.value, g.value)
    for worker in (one, other):
        worker.socket.close()


def test_a_stranger_gets_nowhere(hub, server, site):
    """Not with another secret, not with rubbish, not under a worker's name."""
    strangers = [
        FakeWorker(server, secret=b"t" * 32),
        connected(server, b"somebody"),
        connected(server, identity_of(SECRET, 1, 1)),
    ]
    strangers[0].say(r.Hello("joins"))
    strangers[1].send([b"rubbish"])
    strangers[2].send([b"rubbish that is longer than a code", b"x"])
    for _ in range(100):
        if hub.refused == 3:
            break
        hub.next(0.05)
    assert hub.refused == 3
    assert not hub._lines.by_rank
    strangers[0].socket.close()
    for s in strangers[1:]:
        s.close()


def test_a_life_that_is_over_is_not_heard_any_more(hub, server):
    old, new = FakeWorker(server, life=1), FakeWorker(server, life=2)
    old.say(r.Hello("begins"))
    assert isinstance(heard(hub), Came)
    hub.end(0)
    assert isinstance(heard(hub), WentAway)
    hub.lost(0)
    new.say(r.Hello("joins"))
    assert isinstance(heard(hub), Came)
    old.say(m.Left())
    for _ in range(100):
        if hub.refused:
            break
        assert hub.next(0.05) is None
    assert hub.refused == 1
    old.socket.close()
    new.socket.close()


def test_a_wrong_gradient_ends_its_worker_and_not_the_run(hub, server, site):
    worker = FakeWorker(server)
    worker.say(r.Hello("begins"))
    assert isinstance(heard(hub), Came)
    frames = []
    packed = Mail(site.codec, Frames()).pack(
        Gradient(torch.ones(3), 0.5, 8, at=site.initial.x), frames, {"x0": site.initial.x}
    )
    worker.say(m.Called(packed, 0.0, 1, []), frames)
    assert isinstance(heard(hub), WentAway)
    assert hub.refused == 1
    worker.socket.close()


def test_nobody_is_answered_before_the_control_has_what_was_done(hub, server):
    worker, control = FakeWorker(server), connected(server, identity_of(SECRET, r.CONTROL, 1))
    to_server = Letters(key_of(SECRET, r.CONTROL, 1), r.CONTROL, 1, r.HeardByControl, to_server=True)
    control.send(to_server.seal(m.Go(1.0, 1.0, 1.0, 1.0)))
    heard(hub)  # now the server can reach it
    worker.say(r.Hello("begins"))
    assert isinstance(heard(hub), Came)
    assert isinstance(worker.hears(), r.Welcome)
    hub.record(m.Transaction(0.5, [], 1, [], 0, 0.0, 0.0))
    hub.send(0, m.Start())
    assert worker.socket.receive(0.2) is None
    frames = control.receive(5.0)
    recorded = to_server.open(frames)[1]
    assert (recorded.number, recorded.transaction.steps) == (1, 1)
    control.send(to_server.seal(r.Kept(1)))
    hub.next(0.5)
    assert isinstance(worker.hears(), m.Start)
    worker.socket.close()
    control.close()


def test_who_a_message_says_it_is_of():
    assert sender_of(pair()[0].seal(m.Left())) == (3, 2)
    with pytest.raises(WrongMessageError):
        sender_of([b"rubbish"])
