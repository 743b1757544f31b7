"""The vocabulary of offbeat: parameters, effects, messages, seeds, the trace, errors. Imports nothing else of ours."""
