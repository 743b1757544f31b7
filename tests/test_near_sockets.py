"""Lines between processes of one machine: nothing is lost, nobody waits for ever, strangers are not let in."""

import os
import subprocess
import sys
import threading

import pytest

from offbeat.engines.ray.near_sockets import NearPeer, NearServer
from offbeat.engines.ray.sockets import ZmqPeer, ZmqServer
from offbeat.engines.real.pieces import PIECE, Assembly, pieces


@pytest.fixture
def far():
    return ZmqServer("127.0.0.1", False, 1 << 20)


@pytest.fixture
def server(far):
    made = NearServer(far)
    yield made
    made.close()


def heard(server):
    found = server.receive(5.0)
    assert found is not None
    return found


@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 1])
def test_pieces_make_the_message_again(size):
    data = os.urandom(size)
    coming = Assembly()
    taken = [coming.take(piece) for piece in (*pieces(data), *pieces(b"next"))]
    assert [bytes(whole) for whole in taken if whole is not None] == [data, b"next"]


def test_those_of_this_machine_and_those_of_others_are_heard_by_one_server(server, far):
    near, distant = NearPeer(server.name, b"near"), ZmqPeer(far.address, b"distant", 1 << 20)
    near.send([b"head", b"x" * (3 * PIECE)])
    distant.send([b"head", b"y"])
    assert sorted(bytes(heard(server)[0]) for _ in range(2)) == [b"distant", b"near"]
    server.send(b"near", [b"to one"])
    server.send(b"distant", [b"to the other"])
    assert near.receive(5.0) == [b"to one"]
    assert [bytes(f) for f in distant.receive(5.0)] == [b"to the other"]
    near.close()
    distant.close()


def test_both_ends_may_have_much_to_say_at_once(server):
    """More than the kernel keeps for either: with two that wait for each other, nobody would get anywhere."""
    peer, much = NearPeer(server.name, b"near"), [os.urandom(20 * PIECE) for _ in range(5)]
    peer.send([b"hello"])
    heard(server)
    talking = threading.Thread(target=lambda: [peer.send([part]) for part in much])
    talking.start()
    for part in much:
        server.send(b"near", [part])
    assert [heard(server)[1] for _ in much] == [[part] for part in much]
    talking.join()
    found = []

    def listen():
        found.extend(peer.receive(5.0) for _ in much)

    listening = threading.Thread(target=listen)
    listening.start()
    while listening.is_alive():
        server.receive(0.01)
    assert found == [[part] for part in much]
    peer.close()


def test_the_last_words_are_heard_and_then_nothing(server):
    """Also those of one who has not read all that was said to it."""
    peer = NearPeer(server.name, b"near")
    peer.send([b"hello"])
    heard(server)
    server.send(b"near", [b"unread"])
    peer.send([b"one"])
    peer.send([b"two"])
    peer.close()
    server.send(b"near", [b"in vain"])
    assert [heard(server)[1], heard(server)[1]] == [[b"one"], [b"two"]]
    assert server.receive(0.05) is None
    server.send(b"near", [b"to nobody"])
    assert server.receive(0.0) is None


def test_a_peer_whose_server_is_gone_hears_the_rest_and_waits(far):
    server = NearServer(far)
    peer = NearPeer(server.name, b"near")
    peer.send([b"hello"])
    heard(server)
    server.send(b"near", [b"farewell"])
    server.close()
    peer.send([b"into the void"])
    assert peer.receive(5.0) == [b"farewell"]
    assert peer.receive(0.01) is None
    with pytest.raises(OSError):
        NearPeer(server.name, b"another")
    peer.close()


def go_on(server, peer, piece):
    for _ in range(100):
        peer._sock.sendall(piece)
        server.receive(0.0)


def test_who_sends_without_end_or_rubbish_is_shut_out_alone(server, far):
    far.most = 3 * PIECE
    endless, rubbish, peer = (NearPeer(server.name, name) for name in (b"endless", b"rubbish", b"near"))
    rubbish._sock.sendall(b".\xc1 no list of frames")
    for _ in range(2):
        endless._sock.sendall(b"+" + b"x" * PIECE)
    peer.send([b"still here"])
    assert heard(server) == (b"near", [b"still here"])
    with pytest.raises(OSError):
        go_on(server, endless, b"+" + b"x" * PIECE)
    with pytest.raises(OSError):
        go_on(server, rubbish, b".x")
    peer.send([b"and now"])
    assert heard(server) == (b"near", [b"and now"])
    for one in (endless, rubbish, peer):
        one.close()


CALL = """
import os, sys
os.setuid(65534)
from offbeat.engines.ray.near_sockets import NearPeer
peer = NearPeer(sys.argv[1], b"near")
peer.send([b"let me in"])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_processes_of_other_users_are_not_let_in(server):
    done = subprocess.Popen([sys.executable, "-c", CALL, server.name], stderr=subprocess.PIPE)
    while done.poll() is None:
        assert server.receive(0.05) is None
    assert server.receive(0.05) is None
    assert not server._by_fd
    done.stderr.close()


def test_nothing_stays_behind(far):
    before = set(os.listdir("/proc/self/fd"))
    server = NearServer(far)
    peer = NearPeer(server.name, b"near")
    peer.send([b"hello"])
    heard(server)
    peer.close()
    server.close()
    assert set(os.listdir("/proc/self/fd")) <= before
    assert far.socket.closed
