"""How true the simulator is: a fixed set of real runs, a fit to one half of them, and a prediction of the other."""
