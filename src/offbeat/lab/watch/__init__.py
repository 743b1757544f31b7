"""Who looks on while an engine runs."""

from offbeat.lab.watch.tally import ratio
from offbeat.lab.watch.watch import Watch

__all__ = ["Watch", "ratio"]
