"""Real processes on one machine."""

from offbeat.engines.local.cradle import Cradle
from offbeat.engines.local.engine import Local
from offbeat.engines.local.setup import Fault, Options

__all__ = ["Cradle", "Fault", "Local", "Options"]
