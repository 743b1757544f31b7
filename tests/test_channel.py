"""Lines between processes: what was said is heard, also when the other end is gone."""

import pytest

from offbeat.engines.local.channel import Channel
from offbeat.engines.real.messages import GoOn, Left, Resting
from offbeat.engines.real.transport import Closed


def pair():
    return Channel.pair(Left | Resting, GoOn)


def test_the_last_words_of_one_who_has_not_read_everything_are_heard():
    """The kernel says first that the line was reset, and only then hands out what had come."""
    ours, theirs = pair()
    ours.send(GoOn())
    theirs.send(Resting())
    theirs.send(Left())
    theirs.close()
    assert isinstance(ours.receive(1), Resting)
    assert isinstance(ours.receive(1), Left)
    with pytest.raises(Closed):
        ours.receive(1)
    ours.close()


def test_nobody_hears_what_is_said_to_one_who_is_gone():
    ours, theirs = pair()
    theirs.close()
    with pytest.raises(Closed):
        ours.send(GoOn())
    ours.close()
