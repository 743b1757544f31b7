"""A checkpoint of a real run: the server's state, and each worker's at the start of its round with what it was told.

It is taken when everybody rests: between two rounds, or waiting for an answer that others must make possible. Then no
message is under way, and the run can go on from there as if it had never stopped.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from safetensors.torch import load, save
from torch import Tensor

from offbeat.core.codec import Codec
from offbeat.core.solver import Solver, World
from offbeat.core.sparse import dense
from offbeat.core.task import Buffers
from offbeat.engines.running.rounds import Rounds, Told


class SavedWorker(Struct):
    """One worker: how its round began, what it was told since, its batches, and whether its call is with the server."""

    tree: Any  # of (start, told, buffers)
    tensors: bytes
    draws: int = 0  # mini-batches whose gradients its rule was given,
    samples: int = 0  # and the samples in them
    works: list[int] = []  # the work clock of its gradients since its last call, where a schedule needs it,
    called: bool = False
    sent_works: list[int] = []  # and of those before, where that call will have to be made again


_NUMBERS = ("draws", "samples", "works", "called", "sent_works")


_PLAIN = ("now", "counters", "there", "waiting", "settled", "noted")


class Checkpoint(Struct):
    """A run that can go on."""

    now: float
    server: Any  # of what `Solver.save_server` gives
    tensors: bytes
    counters: dict[str, int]
    there: list[int]
    waiting: list[int]
    workers: dict[int, SavedWorker]
    settled: list[int]  # of each worker, how many of its first mini-batches have rows,
    noted: list[tuple[int, int]]  # and which others do
    held: list[Any] = []  # who holds which shares of the data, where that was changed


def pack(codec: Codec, tree: Any) -> tuple[Any, bytes]:
    """A tree of records as plain values, and its tensors as the bytes of a safetensors file."""
    tensors: dict[str, Tensor] = {}
    encoded = codec.encode(tree, tensors)
    return encoded, save({name: dense(t).detach().clone().contiguous() for name, t in tensors.items()})


def unpack(codec: Codec, encoded: Any, tensors: bytes, lodge: Callable[[Tensor], Any] = lambda t: t) -> Any:
    """The inverse; `lodge` says what stands for a tensor that does not stay here.

    Tensors are in memory of their own, as torch lays it: sums could have other bits otherwise.
    """
    return codec.decode(encoded, {name: lodge(t.clone()) for name, t in load(tensors).items()})


def save_worker(codec: Codec, rounds: Rounds, buffers: Buffers) -> SavedWorker:
    return SavedWorker(*pack(codec, (rounds.start, rounds.told, buffers)))


def load_worker(codec: Codec, solver: Solver, world: World, saved: SavedWorker) -> tuple[Any, list[Told], Buffers]:
    start, told, buffers = unpack(codec, saved.tree, saved.tensors)
    return solver.revive(start, world), told, buffers


def to_plain(c: Checkpoint, tensors: dict[str, Any]) -> dict[str, Any]:
    """As JSON; its tensors are added to `tensors` under names of their own."""
    tensors.update({f"server.{name}": t for name, t in load(c.tensors).items()})
    workers = {}
    for i, w in c.workers.items():
        tensors.update({f"worker{i}.{name}": t for name, t in load(w.tensors).items()})
        workers[str(i)] = {"tree": w.tree, **{n: getattr(w, n) for n in _NUMBERS}}
    held = {"held": c.held} if c.held else {}
    return {"server": c.server, "workers": workers, **{n: getattr(c, n) for n in _PLAIN}, **held}


def from_plain(plain: Mapping[str, Any], tensors: Mapping[str, Any]) -> Checkpoint:
    """The inverse of `to_plain`."""

    def own(owner: str) -> bytes:
        prefix = f"{owner}."
        return save({n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)})

    workers = {
        int(i): SavedWorker(w["tree"], own(f"worker{i}"), **{n: w[n] for n in _NUMBERS if n in w})
        for i, w in plain["workers"].items()
    }
    noted = [(source, draw) for source, draw in plain["noted"]]
    rest = {n: plain[n] for n in _PLAIN} | {"held": plain.get("held", [])}
    return Checkpoint(server=plain["server"], tensors=own("server"), workers=workers, **{**rest, "noted": noted})
