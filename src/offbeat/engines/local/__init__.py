"""Real processes on one machine."""

from offbeat.engines.local.launcher import Launcher
from offbeat.engines.local.local import Local
from offbeat.engines.real.site import Fault, Options

__all__ = ["Fault", "Launcher", "Local", "Options"]
