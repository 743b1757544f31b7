"""Trees of records <-> JSON text + a table of tensors. What checkpoints are made of; no pickle anywhere.

Tensors are stored once however often they are shared, and are shared again after decoding. Only records of the
classes handed to the codec are rebuilt, so a file cannot make offbeat construct anything else.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from torch import Tensor

from offbeat.core import effects
from offbeat.core.errors import StoreError
from offbeat.core.parted import PartedVector
from offbeat.core.sparse import RowSparse, RowTable
from offbeat.core.trace import Row
from offbeat.core.void import Void

CORE_RECORDS: tuple[type, ...] = (
    effects.Gradient,
    effects.View,
    effects.Grad,
    effects.Call,
    effects.Push,
    effects.AllReduce,
    effects.Reduced,
    effects.SharedRead,
    effects.SharedAdd,
    RowSparse,
    Row,
    Void,
)
_SCALARS = (str, int, float, bool, type(None))
_FIELDS: dict[type, tuple[str, ...]] = {}  # as found


def fields_of(kind: type) -> tuple[str, ...]:
    """Names of a record's fields: a struct's, a dataclass's, a named tuple's, or the slots of a plain class."""
    found = _FIELDS.get(kind)
    if found is None:
        found = _FIELDS[kind] = _find_fields(kind)
    return found


def _find_fields(kind: type) -> tuple[str, ...]:
    if issubclass(kind, Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return tuple(f.name for f in dataclasses.fields(kind))
    if hasattr(kind, "_fields"):
        return tuple(kind._fields)
    if not hasattr(kind, "__slots__"):
        raise AttributeError(
            f"{kind.__name__} is no record: it is neither a struct nor a dataclass nor a named tuple nor has slots"
        )
    return tuple(name for base in reversed(kind.__mro__) for name in getattr(base, "__slots__", ()))


def _defaults(kind: type) -> dict[str, Any]:
    """What a dataclass's fields are unless somebody says otherwise: so it is for those that are younger than a file."""
    if not dataclasses.is_dataclass(kind):
        return {}
    return {f.name: f.default for f in dataclasses.fields(kind) if f.default is not dataclasses.MISSING}


def _build(kind: type, values: dict[str, Any]) -> Any:
    if hasattr(kind, "_fields") or issubclass(kind, Struct):
        return kind(**values)
    made: Any = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


class Live:
    """What was saved of an object that must be made anew, such as an optimizer; the solver does so in `revive`."""

    __slots__ = ("saved",)

    def __init__(self, saved: Any) -> None:
        self.saved = saved


class Codec:
    """Encodes plain values, containers, tensors and the records it was given."""

    def __init__(self, records: Iterable[type] = ()) -> None:
        self._kinds = {kind.__name__: kind for kind in (*CORE_RECORDS, *records)}

    def encode(self, tree: Any, tensors: dict[str, Any], tables: dict[str, RowTable] | None = None) -> Any:
        """JSON-able form of `tree`; its tensors are added to `tensors`, each distinct one once.

        So are its Tables to `tables`. Of a history of which whoever decodes has a version, only rows are needed.
        """
        names: dict[int, str] = {id(t): name for name, t in tensors.items()}
        tables = {} if tables is None else tables
        bases = {id(t.array): name for name, t in tables.items()}
        named = {id(t): name for name, t in tables.items()}

        def walk(node: Any) -> Any:
            if isinstance(node, _SCALARS):
                return node
            if isinstance(node, Tensor | PartedVector):
                if id(node) not in names:
                    names[id(node)] = f"t{len(names)}"
                    tensors[names[id(node)]] = node
                return {"$tensor": names[id(node)]}
            if isinstance(node, RowTable):
                return table(node)
            kind = type(node)
            if callable(getattr(node, "state", None)):  # a torch optimizer at work
                return {"$live": walk(node.state())}
            if self._kinds.get(kind.__name__) is kind:
                return {"$record": kind.__name__, "fields": {f: walk(getattr(node, f)) for f in fields_of(kind)}}
            if isinstance(node, dict):
                return {"$dict": [[walk(k), walk(v)] for k, v in node.items()]}
            if isinstance(node, list):
                return [walk(v) for v in node]
            if isinstance(node, tuple):
                return {"$tuple": [walk(v) for v in node]}
            if isinstance(node, set | frozenset):
                return {"$set": [walk(v) for v in sorted(node)]}
            raise TypeError(f"a checkpoint cannot hold {kind.__name__} objects: put plain values, tensors or records")

        def table(node: RowTable) -> Any:
            """Each version once: the newest as its array, an older one as what differs from it."""
            if id(node) in named:
                return {"$table": named[id(node)]}
            name = named[id(node)] = f"T{len(tables)}"
            tables[name] = node
            if id(node.array) in bases:
                base = bases[id(node.array)]
                rows = node.changed(tables[base])
                return {"$table": name, "base": base, "rows": walk(rows), "values": walk(node.take(rows))}
            newest, rows, values = node.difference()
            if newest is node:
                return {"$table": name, "array": walk(node.array), "frozen": node.frozen}
            return {"$table": name, "newest": walk(newest), "rows": walk(rows), "values": walk(values)}

        return walk(tree)

    def decode(self, tree: Any, tensors: Mapping[str, Any], tables: dict[Any, RowTable] | None = None) -> Any:
        """The inverse of `encode`, with the `tables` it began with; those it was given are added."""
        tables = {} if tables is None else tables

        def walk(node: Any) -> Any:
            if isinstance(node, list):
                return [walk(v) for v in node]
            if not isinstance(node, dict):
                return node
            match node:
                case {"$tensor": name}:
                    return tensors[name]
                case {"$table": name, "array": array, "frozen": frozen}:
                    tables[name] = RowTable(walk(array), frozen=frozen)
                    return tables[name]
                case {"$table": name, "newest": newest, "rows": rows, "values": values}:
                    tables[name] = RowTable.older(walk(newest), walk(rows), walk(values))
                    return tables[name]
                case {"$table": name, "base": base, "rows": rows, "values": values}:
                    tables[name] = tables[base].put(walk(rows), walk(values))
                    return tables[name]
                case {"$table": name}:
                    return tables[name]
                case {"$live": saved}:
                    return Live(walk(saved))
                case {"$record": name, "fields": values}:
                    if name not in self._kinds:
                        raise StoreError(f"checkpoint holds a record {name!r} that this solver does not have")
                    kind = self._kinds[name]
                    younger = {f: v for f, v in _defaults(kind).items() if f not in values}
                    if differ := sorted((values.keys() ^ fields_of(kind)) - younger.keys()):
                        raise StoreError(
                            f"checkpoint was written by another version of offbeat: its {name} differs in "
                            f"{', '.join(differ)}"
                        )
                    return _build(kind, {**younger, **{f: walk(v) for f, v in values.items()}})
                case {"$dict": pairs}:
                    return {walk(k): walk(v) for k, v in pairs}
                case {"$tuple": values}:
                    return tuple(walk(v) for v in values)
                case {"$set": values}:
                    return {walk(v) for v in values}
            raise StoreError(f"checkpoint holds an unknown node with keys {sorted(node)}")

        return walk(tree)

    def snapshot(self, node: Any) -> Any:
        """A copy of the structure that shares the tensors: enough, because rules replace tensors and never mutate."""
        if isinstance(node, (*_SCALARS, Tensor, RowTable, PartedVector)):
            return node
        if isinstance(node, dict):
            return {k: self.snapshot(v) for k, v in node.items()}
        if isinstance(node, list | tuple | set) and not hasattr(node, "_fields"):
            return type(node)(self.snapshot(v) for v in node)
        kind = type(node)
        if kind in CORE_RECORDS or self._kinds.get(kind.__name__) is not kind:
            return node  # messages are never changed after they were sent
        return _build(kind, {f: self.snapshot(getattr(node, f)) for f in fields_of(kind)})
