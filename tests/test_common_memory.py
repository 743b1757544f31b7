"""Memory that processes of one machine share on a cluster: only who was told finds it, and nothing stays behind."""

import os
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
import torch

from harness import mlp_task
from offbeat.core.effects import Gradient, View
from offbeat.core.feed import Feed
from offbeat.engines.cluster import Cluster
from offbeat.engines.ray import ray_messages as r
from offbeat.engines.ray.common_memory import create, open_near
from offbeat.engines.ray.frames import WrongMessageError
from offbeat.engines.ray.ray_hub import RayHub
from offbeat.engines.ray.ray_line import RayLine
from offbeat.engines.ray.remote_board import RemoteBoard, row_of
from offbeat.engines.ray.sockets import Address, ZmqPeer, ZmqServer
from offbeat.engines.ray.wire import Letters, identity_of, key_of
from offbeat.engines.real import messages as m
from offbeat.engines.real.mail import Mail
from offbeat.engines.real.site import Options, Setup, Site
from offbeat.engines.real.transport import Came, Said
from offbeat.optim.steppers import optimizer_factory
from offbeat.solvers.asgd import ASGD

SECRET = b"s" * 32


@pytest.fixture
def memory():
    made = create(2, torch.zeros(1000))
    yield made
    made.close()


def test_both_ends_see_the_same(memory):
    near = open_near(memory.handle)
    near.set_row(1, ([*range(7)], [0.5, 1.5, 2.5, 3.5]))
    assert memory.row(1) == ([*range(7)], [0.5, 1.5, 2.5, 3.5])
    here, there = memory.frames(1, at_server=True), near.frames(1, at_server=False)
    for out, into in ((here, there), (there, here)):
        x, frames = torch.rand(1000), []
        parts = out.write(frames, {"x": x, "n": torch.tensor(3)})
        assert frames == [], "nothing goes beside the message"
        found = into.read(frames, parts)
        assert torch.equal(found["x"], x)
        assert found["n"] == 3
    x = there.read([], here.write([], {"x": torch.ones(1000)}))["x"]
    here.write([], {"x": torch.zeros(1000)})
    assert x.sum() == 1000, "what was received is the receiver's own"


def test_the_ways_of_two_workers_do_not_meet(memory):
    ends = [memory.frames(i, at_server=at_server) for i in range(2) for at_server in (True, False)]
    written = [end.write([], {"x": torch.full((1000,), float(k))}) for k, end in enumerate(ends)]
    others = [memory.frames(i, at_server=not at_server) for i in range(2) for at_server in (True, False)]
    for k, (end, parts) in enumerate(zip(others, written, strict=True)):
        assert torch.equal(end.read([], parts)["x"], torch.full((1000,), float(k)))


def test_what_does_not_fit_its_place_goes_beside_the_message(memory):
    frames, x = [], torch.rand(8 * 1000 + 65536)
    parts = memory.frames(0, at_server=True).write(frames, {"x": x})
    assert len(frames) == 1
    assert torch.equal(memory.frames(0, at_server=False).read(frames, parts)["x"], x)


@pytest.mark.parametrize(
    "part",
    [
        ("x", [0], "float32", (10**9,)),
        ("x", [-64], "float32", (1,)),
        ("x", [0], "object", (1,)),
        ("x", [0], "int8", (-1,)),
    ],
    ids=["too long", "before its place", "no such type", "no such shape"],
)
def test_nobody_reads_outside_his_place(memory, part):
    with pytest.raises(WrongMessageError):
        memory.frames(0, at_server=True).read([], [part])


def test_another_file_is_not_taken_for_it(memory):
    assert open_near(memory.handle._replace(token=b"t" * 32)) is None
    assert open_near(memory.handle._replace(fd=10**6)) is None
    assert open_near(memory.handle._replace(pid=2**22 + 1)) is None
    assert open_near(None) is None


def test_another_machine_has_no_part_in_it(memory):
    address = Address("tcp://10.0.0.1:1", None, "10.0.0.1", memory.handle)
    assert address.open_memory("10.0.0.2") is None
    assert address.open_memory("10.0.0.1") is not None


def mapped(pid):
    """The anonymous files of ours that a process maps or holds."""
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").count("memfd:offbeat")
    fds = sum("memfd:offbeat" in os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.is_symlink())
    return maps, fds


def test_it_outlives_the_server_and_goes_with_the_last(tmp_path):
    """A process makes it, writes into its log and is killed: whoever had opened it reads on, and nothing has a name."""
    code = """
import sys, torch
from offbeat.engines.ray.common_memory import create
memory = create(2, torch.zeros(1000))
memory.log.append(b"done")
print(memory.handle.fd, memory.handle.token.hex(), flush=True)
sys.stdin.read()
"""
    server = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    fd, token = server.stdout.readline().split()
    handle = create(2, torch.zeros(1000)).handle._replace(pid=server.pid, fd=int(fd), token=bytes.fromhex(token))
    near = open_near(handle)
    server.kill()
    server.wait()
    assert list(near.log.read()) == [b"done"]
    assert open_near(handle) is None, "nobody else can come to it"
    before = mapped(os.getpid())[0]
    del near
    assert mapped(os.getpid())[0] == before - 1
    for stream in (server.stdout, server.stdin):
        stream.close()


@pytest.fixture
def site():
    task = mlp_task()
    feed = Feed(task.size, batch=8, workers=2, seed=3)
    setup = Setup(ASGD(optimizer_factory("sgd", lr=0.05)), Cluster(workers=2), feed, 3, Options(), task)
    initial = task.init(3)
    return Site(setup, task, initial, RemoteBoard(2, initial.x))


@pytest.fixture
def server():
    made = ZmqServer("127.0.0.1", False, 1 << 20)
    yield made
    made.close()


def test_a_worker_on_the_servers_machine_sends_heads_alone(site, server):
    """Its vectors and numbers are in memory: one frame a message; and who begins a gradient sends nothing."""
    memory = create(2, site.initial.x)
    hub = RayHub(site, site.board, server, SECRET, 1, Event(), memory)
    near = open_near(memory.handle)
    letters = Letters(key_of(SECRET, 0, 1), 0, 1, r.HeardByWorker, to_server=True)
    socket = ZmqPeer(server.address, identity_of(SECRET, 0, 1), 1 << 20)
    near.set_row(0, ([9] * 7, [9.0] * 4))  # what an earlier life has left
    socket.send(letters.seal(r.Hello("begins", near=True)))
    assert isinstance(hub.next(5.0), Came)
    assert letters.open(socket.receive(5.0))[1].row == row_of(RemoteBoard(2, site.initial.x), 0)
    hub._inbox._next_look = 0.0
    assert hub.next(0.0) is None
    assert site.board.draws[0] == 0, "what an earlier life has left is not believed"

    mine = RemoteBoard(2, site.initial.x)
    mine.draws[0] = mine.job[0] = 1
    near.set_row(0, row_of(mine, 0))
    hub._inbox._next_look = 0.0
    assert hub.next(0.0) is None
    assert (site.board.draws[0], site.board.job[0]) == (1, 1), "the server knows of what was begun"

    g = Gradient(torch.rand_like(site.initial.x), 0.5, 8, at=site.initial.x, version=0)
    frames = []
    packed = Mail(site.codec, near.frames(0, at_server=False)).pack(g, frames, {"x0": site.initial.x})
    socket.send(letters.seal(m.Called(packed, 0.0, 1, []), frames))
    said = hub.next(5.0)
    assert isinstance(said, Said)
    assert torch.equal(said.message.payload.value, g.value)
    view = View(torch.rand_like(site.initial.x), 7)
    assert hub.answer(0, view) == view.x.nbytes
    answer = socket.receive(5.0)
    assert len(answer) == 1
    tree, parts = letters.open(answer)[1].value
    found, _ = Mail(site.codec, near.frames(0, at_server=False)).unpack_reply(tree, parts, [], {"x0": site.initial.x})
    assert torch.equal(found.x, view.x)
    socket.close()
    memory.close()


def test_what_is_in_the_log_is_with_the_control_and_nobody_waits(site, server):
    """A worker is answered without a word of the control, which has what was written down before it hears of it."""
    memory = create(2, site.initial.x)
    hub = RayHub(site, site.board, server, SECRET, 1, Event(), memory, control_is_near=True)
    control = ZmqPeer(server.address, identity_of(SECRET, r.CONTROL, 1), 1 << 20)
    letters = Letters(key_of(SECRET, r.CONTROL, 1), r.CONTROL, 1, r.HeardByControl, to_server=True)
    board = RemoteBoard(2, site.initial.x)
    line = RayLine(control, letters, board, site.codec, lambda *_: None, print, open_near(memory.handle).log)
    line.send(m.Go(1.0, 1.0, 1.0, 1.0))
    hub.next(5.0)
    worker = Letters(key_of(SECRET, 0, 1), 0, 1, r.HeardByWorker, to_server=True)
    socket = ZmqPeer(server.address, identity_of(SECRET, 0, 1), 1 << 20)
    socket.send(worker.seal(r.Hello("begins")))
    assert isinstance(hub.next(5.0), Came)
    worker.open(socket.receive(5.0))
    hub.record(m.Transaction(0.5, [(1, None, "x")], 1, [(0.5, "call", 0, 0)], 0, 0.0, 0.0))
    hub.send(0, m.Start())
    assert isinstance(worker.open(socket.receive(5.0))[1], m.Start)
    hub.tell(m.Tick(0.5))
    assert isinstance(line.receive(5.0), m.Tick)
    (found,) = line.committed()
    assert (found.steps, found.rows, found.journal) == (1, [(1, None, "x")], [(0.5, "call", 0, 0)])
    line.close()
    socket.close()
    memory.close()
