"""How the number of workers of a run changes: some leave, others will come, and shares of the data change hands.

It happens while everybody rests, as a checkpoint does: then it is known which batches each worker has taken. Whoever is
to leave first ends its round, if it can: its calls are answered while those of others wait.
"""

from typing import TYPE_CHECKING

from offbeat.core.shares import entries
from offbeat.engines.real import messages as m
from offbeat.engines.real.resting import PATIENCE, call_to_rest, end_rest, wait_until_still

if TYPE_CHECKING:
    from offbeat.engines.real.server_loop import ServerLoop


def rearrange(server: "ServerLoop", order: m.Rearrange) -> None:
    """Answers the control's `Rearrange`."""
    server.leaving = set(order.leave) & set(server.peers)
    paused = call_to_rest(server)
    wait_until_still(server)
    for i in sorted(server.leaving & set(server.peers)):
        server.hub.send(i, m.Dismissed())
    while server.leaving & set(server.peers):
        heard = server.hub.next(PATIENCE)
        if heard is not None:
            server.see_to(heard)
        server.tick()
    server.leaving = set()
    wait_until_still(server)  # somebody may have been answered because others left
    _deal(server, order.join, order.idle)
    server.hub.tell(m.Rearranged(server.clock.now()))
    end_rest(server, paused)


def _deal(server: "ServerLoop", join: list[int], idle: list[int]) -> None:
    """Every share of the data to somebody who is there, or will be."""
    feed, there = server.site.feed, {*server.peers, *join}
    if not feed.divided or not there:
        return
    changed = feed.shares.deal(there, server.board.draws.tolist(), idle)
    for i, held in sorted(changed.items()):
        for entry in entries(i, held):
            server.record.happened(*entry)
        if i in server.peers:
            server.hub.send(i, m.Holds(held[0], list(held[1])))
    server.record.commit()
