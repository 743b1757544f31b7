"""Real processes on many machines: Ray places, starts and watches them; vectors travel beside it."""

from offbeat.engines.ray.on_ray import OnRay
from offbeat.engines.ray.ray_options import RayOptions

__all__ = ["OnRay", "RayOptions"]
