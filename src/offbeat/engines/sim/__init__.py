"""The simulator."""

from offbeat.engines.sim.simulator import Sim

__all__ = ["Sim"]
