"""Where workers add to a shared vector, the server's state is what they have made of it."""

from offbeat.engines.real.transport import Hub
from offbeat.engines.running.serving import Serving


def take_in_shared(serving: Serving, hub: Hub) -> None:
    """The vector and its version, as they are now. Nobody tells the server of an addition: it has to look."""
    if (shared := hub.shared()) is not None:
        serving.state.x, serving.state.version = shared
