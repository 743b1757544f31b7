"""Slow references for the solvers, in plain numpy and torch. Nothing here imports offbeat."""
