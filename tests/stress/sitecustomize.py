"""Python imports this by itself when it starts, if it finds it: `pytest --stress` sees to that through PYTHONPATH."""

import os

if "OFFBEAT_STRESS" in os.environ:
    import adversity

    adversity.install()
