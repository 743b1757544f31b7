"""The lab: where task, solver and engine meet - configuration, build, run, sweep, store."""
