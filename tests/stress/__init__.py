"""Adversity for the tests of real processes; `make stress`."""
