"""The parameter server: one solver with six slots. A named method is the functions that it puts into them.

| file | holds |
|---|---|
| `state.py` | what the server and its workers keep; a method with something of its own to keep extends these records |
| `slots.py` | what a slot is given and what it gives back, and the slots that several methods share |
| `rule.py` | the solver that calls them |
| `overlap.py` | a worker's round that computes while its message is under way |
"""

from offbeat.solvers.parameter_server.rule import ParameterServer
from offbeat.solvers.parameter_server.slots import Arrival, everybody, fresh, wait
from offbeat.solvers.parameter_server.state import Held, S, Server, W, Worker

__all__ = ["Arrival", "Held", "ParameterServer", "S", "Server", "W", "Worker", "everybody", "fresh", "wait"]
