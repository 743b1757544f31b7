"""Training out of sync, on purpose."""
