"""Python's collector of cycles, kept away from where millions of objects are made without a cycle among them."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing is looked through meanwhile: looking for cycles would take longer than all the rest.

    What was made counts as old afterwards. It would be looked through at once otherwise, all of it, for being new.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            if not gc.get_freeze_count():  # or what somebody else has frozen would thaw
                gc.freeze()
                gc.unfreeze()
            gc.enable()
