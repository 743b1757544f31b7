"""How a checkpoint of a real run is taken: everybody comes to rest, tells what it needs to go on, and goes on.

A worker rests between two rounds; one that waits for an answer (a barrier, an all-reduce, a peer's message) is still
as well. Nobody is answered meanwhile: calls are put off, and if the run goes on from here they will be made again. When
all are still and no sum is being made, no message is under way: what server and workers know is the state of the run.
"""

from typing import TYPE_CHECKING

from offbeat.engines.real import messages as m
from offbeat.engines.real.checkpoint import Checkpoint, SavedWorker, pack
from offbeat.engines.real.transport import Said

if TYPE_CHECKING:
    from offbeat.engines.real.server_loop import ServerLoop

PATIENCE = 0.05  # seconds until the next look at the clock


def take_checkpoint(server: "ServerLoop") -> None:
    """Answers the control's `Save`. If the run stands still for the watcher, workers go on to their resting places."""
    paused = call_to_rest(server)
    found: dict[int, SavedWorker] = {}
    while True:
        wait_until_still(server)
        since = server.clock.now()
        server.company.follow_description(since)  # of what is to happen, a run that goes on knows only what comes later
        found = _collect(server)
        server.clock.skip(since)
        if set(found) == set(server.peers) and server.company.still:
            break
    server.record.listen()
    server.attendance.show()  # a shared vector is part of the state
    for i in server.serving.waiting:
        if i in found:
            found[i].called, found[i].sent_works = True, []  # the call has told them
    counters = server.ledger.counters()
    codec, solver = server.site.codec, server.solver
    state, tensors = pack(codec, solver.save_server(server.serving.state))
    there, waiting = sorted(server.serving.there), sorted(server.serving.waiting)
    server.board.rest[0] = 0
    now = server.clock.now()
    books = server.record.open.state()
    held = server.site.feed.shares.plain()
    server.hub.tell(m.Saved(Checkpoint(now, state, tensors, counters, there, waiting, found, *books, held)))
    proceed = server.hub.next_order()
    assert isinstance(proceed, m.Proceed)
    server.clock.skip(now)
    end_rest(server, paused)


def call_to_rest(server: "ServerLoop") -> bool:
    """From now on, everybody rests at the end of its round. True if everything stood still for the watcher."""
    server.record.listen()
    server.board.rest[0] = 1
    return server.attendance.resume()


def end_rest(server: "ServerLoop", paused: bool) -> None:
    """Everybody goes on, or (if it was so before) stands still."""
    server.board.rest[0] = 0
    for peer in list(server.peers.values()):
        if peer.resting:
            peer.resting = False
            server.hub.send(peer.rank, m.GoOn())
    if paused:
        server.attendance.pause()
    server.go_on()


def wait_until_still(server: "ServerLoop") -> None:
    while server.summing or not server.company.still:
        heard = server.hub.next(PATIENCE)
        if heard is not None:
            server.see_to(heard)
        server.tick()


def _collect(server: "ServerLoop") -> dict[int, SavedWorker]:
    """What each worker needs to go on; nothing if one was lost meanwhile, because then others may be still no more."""
    found: dict[int, SavedWorker] = {}
    asked = set(server.peers)
    for i in asked:
        server.hub.send(i, m.SaveYourself())
    while (asked & set(server.peers)) - set(found):
        heard = server.hub.next(PATIENCE)
        if isinstance(heard, Said) and isinstance(heard.message, m.WorkerSaved):
            found[heard.worker] = heard.message.saved
        elif heard is not None:
            server.see_to(heard)
        server.tick()
    complete = set(found) == set(server.peers) and server.company.still
    return found if complete else {}
