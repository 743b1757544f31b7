"""Real processes on many machines: Ray places, starts and watches them; vectors travel beside it.

Nothing is imported here: `connection.require_ray` can then say in one line what is missing.
"""
