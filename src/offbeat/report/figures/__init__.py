"""Figures, one subject a file: what is drawn, as data."""
