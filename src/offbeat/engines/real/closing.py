"""How the server closes the books of a run that is over. Everybody stands still."""

from typing import TYPE_CHECKING

from offbeat.core.effects import Gradient
from offbeat.core.trace import IN_FLIGHT
from offbeat.engines.real import messages as m

if TYPE_CHECKING:
    from offbeat.engines.real.server_loop import ServerLoop


def close_books(server: "ServerLoop") -> None:
    """One row for every gradient that is still under way."""
    record, ledger = server.record, server.ledger
    record.listen()
    server.attendance.show()
    version, now = server.serving.version, server.clock.now()
    for worker, g in server.solver.held(server.serving.state):
        ledger.note(now, worker, g, version, IN_FLIGHT)
    for i, peer in sorted(server.peers.items()):
        late = [said.message for said in server.put_off if said.worker == i]
        called = [u for u in [*late, *server.hub.unread(i)] if isinstance(u, m.Called)]
        for call in called:
            if isinstance(call.payload, Gradient):
                ledger.note(now, i, call.payload, version, IN_FLIGHT)
        begun = record.open.settle(i, now, version, IN_FLIGHT)
        if not called and (view := peer.unread_view(begun)) is not None:
            ledger.snapshot(now, i, view.version, version, IN_FLIGHT)
    for i in range(server.site.cluster.workers):  # those we have not even met
        record.open.settle(i, now, version, IN_FLIGHT)
    record.commit()
    server.hub.tell(m.Finished())
