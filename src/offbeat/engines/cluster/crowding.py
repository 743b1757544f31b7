"""What shares the cores of a machine, and how."""

from typing import Literal, get_args

from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import shown
from offbeat.engines.cluster.distributions import ZERO, Distribution
from offbeat.engines.cluster.validity import is_count

CoresFor = Literal["computing", "everything"]


def check_cores(cores: object, cores_for: object, slices: object) -> None:
    if cores is not None and (not is_count(cores) or cores == 0):
        raise ConfigError(f"cores must be a whole number from 1, got {shown(cores)}")
    if cores_for not in get_args(CoresFor):
        raise unknown("cores_for", str(cores_for), get_args(CoresFor))
    if cores is None and cores_for != "computing":
        raise ConfigError(f"cores_for has no effect without cores, got {shown(cores_for)}")
    if not isinstance(slices, Distribution):
        raise ConfigError(f"slice must be a distribution, got {shown(slices)}")
    if cores is None and slices != ZERO:
        raise ConfigError(f"slice has no effect without cores, got {shown(str(slices))}")
