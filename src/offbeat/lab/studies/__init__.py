"""Many runs, or a run looked at again: comparisons, sweeps, calibration, landscapes."""
