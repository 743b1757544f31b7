"""What processes tell each other before torch.distributed has connected them: a store without a socket of its own."""

from collections import deque
from datetime import timedelta
from threading import Condition

from torch.distributed import Store  # type: ignore[attr-defined]


class Notes(Store):
    """A store of torch.distributed. What is set here waits in `outgoing` for somebody to pass it on; what others have
    set is handed in with `take`. So it needs no port, and nobody outside the run can write into it."""

    def __init__(self, patience_seconds: float) -> None:
        super().__init__()
        self.outgoing: deque[tuple[str, bytes]] = deque()
        self._patience = patience_seconds
        self._values: dict[str, bytes] = {}
        self._changed = Condition()
        self._over = False

    def take(self, key: str, value: bytes) -> None:
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def close(self) -> None:
        """Whoever waits for a note gives up."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    # -- as torch calls it ----------------------------------------------------------------------------------------

    def set(self, key: str, value: bytes) -> None:  # type: ignore[override]  # it is bytes
        self.take(key, value)
        self.outgoing.append((key, value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        limit = self._patience if timeout is None else timeout.total_seconds()
        with self._changed:
            self._changed.wait_for(lambda: self._over or self.check(keys), limit)
            if self._over or not self.check(keys):
                raise RuntimeError("the others did not say where they are")
