"""One run: its plan, its course, its folder."""
