"""Payloads with tensors, packed for the way: what the other side already has is named, not sent again."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Protocol

from torch import Tensor

from offbeat.core.codec import Codec
from offbeat.core.effects import Gradient, View
from offbeat.core.parted import PartedVector
from offbeat.core.sparse import RowTable

Vector = Tensor | PartedVector
Known = dict[str, Vector | RowTable]
"""What the two ends of a line both have, by name."""


class Places(Protocol):
    """Where the tensors of a message lie on their way: a slot of shared memory, or the frames beside a message."""

    def write(self, slot: Any, tensors: Mapping[str, Any]) -> list[Any]:
        """Puts tensors, or what stands for them, into a slot; says where each lies."""

    def read(self, slot: Any, parts: list[Any]) -> dict[str, Tensor]:
        """Private copies of a slot's tensors."""


class Mail:
    """Writes payloads into a slot, and reads them from it.

    What the other side already has (the vector it was last sent) is named, not copied; of a RowTable of which it has
    another version, only the rows that changed are written. Gradients and views, which nearly all messages are, go as
    their numbers under a name; all else as a tree of the codec, whose names begin with $.
    """

    def __init__(self, codec: Codec, places: Places, *, two: bool = False) -> None:
        """`two`: the other side also has the vector before the last, of which its next gradient will be."""
        self._codec, self._places, self._two = codec, places, two

    def pack(self, payload: Any, slot: Any, known: Known) -> tuple[Any, list[Any]]:
        at = _known_point(payload, known)
        if at is not None:
            return {"gradient": (at, *_numbers(payload))}, self._places.write(slot, {"value": payload.value})
        tensors, tables = _apart(known)
        tree = self._codec.encode(payload, tensors, tables)
        new = {name: t for name, t in tensors.items() if name not in known}
        return tree, self._places.write(slot, new)

    def unpack(self, tree: Any, parts: list[Any], slot: Any, known: Known) -> Any:
        if type(tree) is dict and "gradient" in tree:
            value, (at, *numbers) = self._places.read(slot, parts)["value"], tree["gradient"]
            return Gradient(value, at=known[at], **dict(zip(_NUMBERS, numbers, strict=True)))
        tensors, tables = _apart(known)
        return self._codec.decode(tree, {**tensors, **self._places.read(slot, parts)}, tables)

    def unpack_pair(self, packed: Any, slot: Any, known: Known) -> Any:
        """What `pack` gave, as one value."""
        tree, parts = packed
        return self.unpack(tree, parts, slot, known)

    def pack_reply(self, value: Any, slot: Any, known: Known) -> tuple[Any, list[Any], Known]:
        """Also says what the other side will have then."""
        if type(value) is View and type(value.x) in (Tensor, PartedVector):
            tree, new = {"view": value.version}, {"x": value.x}
            return tree, self._places.write(slot, new), self._known(known, new, {})
        tensors: dict[str, Tensor] = {}
        tables = _apart(known)[1]
        return (
            self._codec.encode(value, tensors, tables),
            self._places.write(slot, tensors),
            self._known(known, tensors, tables),
        )

    def unpack_reply(self, tree: Any, parts: list[Any], slot: Any, known: Known) -> tuple[Any, Known]:
        tensors, tables = self._places.read(slot, parts), _apart(known)[1]
        if type(tree) is dict and "view" in tree:
            return View(tensors["x"], tree["view"]), self._known(known, tensors, {})
        value = self._codec.decode(tree, tensors, tables)
        return value, self._known(known, tensors, tables)

    def _known(self, before: Known, tensors: dict[str, Tensor], tables: dict[str, RowTable]) -> Known:
        """After a reply: what it held, and the initial point. Tables stay known until there are others."""
        new = {f"r.{name}": x for name, x in tables.items() if name not in before}
        old = {name: x for name, x in before.items() if isinstance(x, RowTable)}
        last = {f"q.{name[2:]}": x for name, x in before.items() if name.startswith("r.")} if self._two else {}
        if not new:  # the tables before the last stay, too
            last = {name: x for name, x in last.items() if not isinstance(x, RowTable)}
        return {"x0": before["x0"], **last, **{f"r.{name}": t for name, t in tensors.items()}, **(new or old)}


_NUMBERS = tuple(name for name in Gradient.__struct_fields__ if name not in ("value", "at", "buffers", "parts"))
_numbers = attrgetter(*_NUMBERS)


def _known_point(payload: Any, known: Known) -> str | None:
    """Of a gradient that is a vector and numbers: the name of the vector it was computed on, which both sides have."""
    if type(payload) is not Gradient or type(payload.value) is not Tensor:
        return None
    if payload.parts or payload.buffers is not None:
        return None
    return next((name for name, x in known.items() if x is payload.at), None)


def _apart(known: Known) -> tuple[dict[str, Vector], dict[str, RowTable]]:
    tensors = {name: x for name, x in known.items() if not isinstance(x, RowTable)}
    return tensors, {name: x for name, x in known.items() if isinstance(x, RowTable)}
