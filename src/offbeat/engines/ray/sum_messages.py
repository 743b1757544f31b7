"""What server and workers say to each other where workers sum among themselves, by torch.distributed."""

from msgspec import Struct

# -- the server to a worker -------------------------------------------------------------------------------------------


class SumUp(Struct, tag=True):
    """Sum your vector with those of the others in your circle.

    `teams` says who they are: a team sums first, then the first of each team. `givers` have brought a vector, with
    these `weights`; the others listen.
    """

    number: int
    circle: int
    teams: list[list[int]]
    givers: list[int]
    weights: list[float]
    size: int
    dtype: str


class Told(Struct, tag=True):
    """What another member of a circle says before they are connected."""

    circle: int
    key: str
    value: bytes


class Disband(Struct, tag=True):
    """This circle is over: whoever is in the middle of a sum gives it up."""

    circle: int


SumsToWorker = SumUp | Told | Disband

# -- a worker to the server -------------------------------------------------------------------------------------------


class Tell(Struct, tag=True):
    """Say this to the others of the circle."""

    circle: int
    key: str
    value: bytes


class SumEnded(Struct, tag=True):
    """This sum is made; or it is not, and `why`."""

    number: int
    why: str | None = None


SumsToServer = Tell | SumEnded
