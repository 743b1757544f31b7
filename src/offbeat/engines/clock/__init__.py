"""The clock alone: the simulator's events without gradients."""
