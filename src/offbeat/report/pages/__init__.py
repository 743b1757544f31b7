"""Pages: one HTML file for one run, or for several compared."""
