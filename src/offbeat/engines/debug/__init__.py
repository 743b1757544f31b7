"""Everything in one process: threads and queues, for the debugger and for tests of what real engines share."""

from offbeat.engines.debug.in_process import Debug

__all__ = ["Debug"]
