"""The server's dealings with the control: it looks up at marks, stands still while the watcher looks, and obeys."""

from collections.abc import Callable
from math import inf

from offbeat.core.sparse import dense
from offbeat.engines.real import messages as m
from offbeat.engines.real.peer import Peer
from offbeat.engines.real.record import Record
from offbeat.engines.real.shared_state import take_in_shared
from offbeat.engines.real.site import Site
from offbeat.engines.real.transport import Hub
from offbeat.engines.running.serving import Serving


class Attendance:
    """Marks, pauses and orders. While the watcher looks everything stands still, and the clock with it."""

    def __init__(self, site: Site, hub: Hub, serving: Serving, record: Record, peers: dict[int, Peer]) -> None:
        self._site, self._hub, self._serving, self._record, self._peers = site, hub, serving, record, peers
        self._board, self._clock, self._ledger = site.board, site.clock, serving.ledger
        self.marks = m.Go(inf, inf, inf, -inf)
        self.stopped = False
        self._paused_at: float | None = None  # by the run's clock, since when everything stands still
        self.save: Callable[[], None]
        """How a checkpoint is taken. Set by the loop, like the others."""
        self.finish: Callable[[], None]
        """How the run is brought to its end."""
        self.rearrange: Callable[[m.Rearrange], None]
        """How some leave, and others are made room for."""
        self.resumed: Callable[[], None]
        """What is to be done when everything goes on."""
        self._board.loss_limit[0], self._board.rest[0] = -inf, 0

    @property
    def paused(self) -> bool:
        return self._paused_at is not None

    def look_up(self) -> None:
        """Has the watcher asked to be called at this point?"""
        if self.stopped or self.paused:
            return
        if self._ledger.samples >= self.marks.samples or self._ledger.updates >= self.marks.updates:
            self.ask(m.Mark(self._clock.now()))
        elif self._clock.now() >= self.marks.deadline:
            self.ask(m.Deadline())

    def ask(self, message: m.Mark | m.SuspectLoss | m.Deadline) -> None:
        """Shows the state of the run to the watcher, and waits for what it says."""
        self.pause()
        self._hub.tell(message)
        self.wait_for_go()
        if not self.stopped:
            self.resume()
            self.resumed()

    def wait_for_go(self) -> None:
        while not self.obey(self._hub.next_order()) and not self.stopped:
            pass

    def pause(self) -> None:
        """Everything stands still from now on; what there is to see is shown."""
        if not self.paused:
            self._hub.pause()
            self._paused_at = self._clock.now()
            self._record.listen()
            self.show()

    def resume(self) -> bool:
        """Goes on; True if it stood still."""
        if self._paused_at is None:
            return False
        self._clock.skip(self._paused_at)
        self._paused_at = None
        for peer in self._peers.values():
            peer.signs = -1  # it was no fault of theirs to be silent
        self._hub.resume()
        return True

    def show(self) -> None:
        """The point that is evaluated, for the control to see."""
        solver, serving = self._site.solver, self._serving
        take_in_shared(serving, self._hub)
        shown = {}
        if solver.shows_workers:
            # Who is there; or, when everybody has left, who was: what they knew is all there is.
            found = {i: self._board.published(i) for i in sorted(self._peers) or range(self._site.cluster.workers)}
            shown = {i: x for i, x in found.items() if x is not None}
        self._board.set_snapshot(dense(solver.parameters(serving.state, shown)))

    def obey(self, order: m.FromControl) -> bool:
        """Carries out one request of the control; True when it says to go on."""
        solver, state = self._site.solver, self._serving.state
        match order:
            case m.Go():
                self.marks, self._board.loss_limit[0] = order, order.loss_limit
                return True
            case m.Halt():
                self.pause()
                self.stopped = True
                options = solver.optimizer_options(state)
                rate = solver.lr(state, self._ledger.samples)
                self._hub.tell(m.Halted(self._clock.now(), rate, None if options is None else dict(options)))
            case m.Save():
                self.save()
            case m.Rearrange():
                self.rearrange(order)
            case m.Finish():
                self.finish()
            case m.TellRate():
                self._hub.tell(m.Rate(solver.lr(state, self._ledger.samples)))
        return False
