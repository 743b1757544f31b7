"""Data: what datasets there are, how they are had, and who gets which samples."""
