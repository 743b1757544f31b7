"""A lock between processes that the kernel takes back from the dead."""

import fcntl


class ByteLock:
    """A lock between processes: one byte of a shared file. The kernel takes it back from a process that dies."""

    def __init__(self, fd: int, number: int) -> None:
        self._fd, self._at = fd, number

    def __enter__(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_EX, 1, self._at)

    def __exit__(self, *_: object) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, self._at)
