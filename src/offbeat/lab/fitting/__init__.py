"""From what was measured to a cluster: the evidence of runs and recordings, and a fit of each part to it."""
