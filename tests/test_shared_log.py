"""Messages through shared memory: all of them, once, in order, however long they are and wherever the ring ends."""

from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.engines.real.shared_log import SharedLog

lengths = st.lists(st.lists(st.integers(0, 60), max_size=4), max_size=30)


def ring(size=256):
    memory = memoryview(bytearray(64 + size))
    return SharedLog(memory), SharedLog(memory)


@given(lengths)
def test_a_reader_has_what_was_written_once_and_in_order(rounds):
    """A queue is the oracle; the ring is a few messages long, so that most runs go round its end."""
    writer, reader = ring()
    sent, found = [], []
    for lengths in rounds:
        for length in lengths[:3]:  # no more than there is room for
            sent.append(bytes([len(sent) % 256]) * length)
            writer.append(sent[-1])
        found += reader.read()
        assert found == sent


def test_a_message_longer_than_the_ring_goes_in_pieces():
    writer, reader = ring()
    message, found = bytes(range(256)) * 40, []
    thread = Thread(target=writer.append, args=(message,))
    thread.start()
    while thread.is_alive():
        found += reader.read()
    thread.join()
    found += reader.read()
    assert found == [message]


class KilledError(Exception):
    pass


class Mortal(SharedLog):
    """Dies before its second piece."""

    def _put(self, data):
        if self._counts[0]:
            raise KilledError
        super()._put(data)


def test_what_a_lost_writer_had_begun_is_no_message():
    memory = memoryview(bytearray(64 + 256))
    reader = SharedLog(memory)
    with pytest.raises(KilledError):
        Mortal(memory).append(b"x" * 200)
    assert list(reader.read()) == []
    SharedLog(memory).append(b"new")
    assert list(reader.read()) == [b"new"]


def test_what_is_forgotten_is_not_read():
    writer, reader = ring()
    writer.append(b"old")
    reader.forget()
    writer.append(b"new")
    assert list(reader.read()) == [b"new"]
