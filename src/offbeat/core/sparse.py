"""Row-sparse values: gradients that touch few rows of a large matrix, and the matrix they are added to.

A `RowSparse` is a value like any other (scaled, negated, summed, averaged), with rows instead of a whole vector.
A `RowTable` is a parameter vector that such values are added to without copying it. It is a *persistent array* (Baker,
"Shallow binding makes functional arrays fast", 1991): `y = x + delta` writes into the one array there is, and turns x
into the rows it had there before. Every version stays readable and never changes, so rules and engines may treat a
RowTable as the immutable vector they know; only what a delta touches is copied, and an old version that nobody holds
any more is freed by itself. Adding to an old version copies the array once: two histories then go on, each with its
own.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from offbeat.core.parted import PartedVector


class RowSparse:
    """A vector of shape (R D), zero except in some rows of D; rows are in order and each comes once."""

    __slots__ = ("rows", "shape", "values")

    def __init__(self, rows: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        self.rows, self.values, self.shape = rows, values, shape

    @classmethod
    def of(cls, rows: Tensor, values: Tensor, shape: tuple[int, int]) -> "RowSparse":
        """From rows in any order; those that come more than once are summed, in the order given."""
        distinct, where = torch.unique(rows, return_inverse=True)
        out = torch.zeros(len(distinct), shape[1], dtype=values.dtype)
        return cls(distinct, out.index_add_(0, where, values), shape)

    def __mul__(self, factor: float) -> "RowSparse":
        return RowSparse(self.rows, self.values * factor, self.shape)

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> "RowSparse":
        return RowSparse(self.rows, self.values / divisor, self.shape)

    def __neg__(self) -> "RowSparse":
        return RowSparse(self.rows, -self.values, self.shape)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, RowSparse):
            rows, values = torch.cat([self.rows, other.rows]), torch.cat([self.values, other.values])
            return RowSparse.of(rows, values, self.shape)
        if isinstance(other, Tensor):
            return other.clone().view(self.shape).index_add_(0, self.rows, self.values).view(-1)
        return NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def norm(self) -> Any:
        return self.values.norm()

    def part(self, k: int, parts: int) -> "RowSparse":
        """Part k of so many, cut by rows."""
        n = len(self.rows)
        here = slice(k * n // parts, (k + 1) * n // parts)
        return RowSparse(self.rows[here], self.values[here], self.shape)

    def at(self, places: Sequence[int]) -> Tensor:
        """Its components at some places of the flat vector."""
        wanted = torch.tensor(places, dtype=torch.int64)
        rows, columns = wanted // self.shape[1], wanted % self.shape[1]
        out = torch.zeros(len(wanted), dtype=self.values.dtype)
        if len(self.rows):
            found = torch.searchsorted(self.rows, rows).clamp_(max=len(self.rows) - 1)
            same = self.rows[found] == rows
            out[same] = self.values[found[same], columns[same]]
        return out

    def add_into(self, x: Tensor) -> None:
        """Adds it to a vector in place, for whoever owns that vector."""
        x.view(self.shape).index_add_(0, self.rows, self.values)

    def dense(self) -> Tensor:
        out: Tensor = self + torch.zeros(self.shape[0] * self.shape[1], dtype=self.values.dtype)
        return out

    @property
    def nbytes(self) -> int:
        """On a wire: the values, and a row number each."""
        return int(self.values.nbytes) + 4 * len(self.rows)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _BINARY and len(args) == 2:
            x, y = args
            return _BINARY[func](x, y)
        if func is torch.add and kwargs is not None and set(kwargs) == {"alpha"}:  # Nesterov's g + mu v
            x, y = args
            return x + kwargs["alpha"] * y
        raise TypeError(f"a row-sparse value has no {getattr(func, '__name__', func)}")


_BINARY: dict[Any, Any] = {
    Tensor.__add__: lambda x, y: y.__radd__(x),
    Tensor.add: lambda x, y: y.__radd__(x),
    Tensor.__sub__: lambda x, y: y.__rsub__(x),
    Tensor.sub: lambda x, y: y.__rsub__(x),
}


class RowTable:
    """One version of a matrix of parameters, as a flat vector of R D numbers that behaves as if immutable.

    One thread may add while others read, without a lock: what a write replaces is linked before the array is written,
    and a reader looks at the array first and at the links after it.
    """

    __slots__ = ("_before", "_next", "_rows", "array", "frozen", "shape")

    def __init__(self, array: Tensor, *, frozen: bool = False) -> None:
        """Takes the (R, D) array over. A frozen one is never written to: use it for what many will start from."""
        self.shape = (int(array.shape[0]), int(array.shape[1]))
        self.array, self.frozen = array, frozen  # the array is as the newest version has it;
        self._next: RowTable | None = None  # an older one knows the version after it,
        self._rows: Tensor | None = None  # the rows that changed there,
        self._before: Tensor | None = None  # and what they were

    # -- reading ------------------------------------------------------------------------------------------------

    def take(self, rows: Tensor) -> Tensor:
        """A copy of some rows of this version."""
        values = self.array.index_select(0, rows)  # a third of the time of array[rows]
        for changed, before in self._undo():
            if len(changed):
                at = torch.searchsorted(changed, rows).clamp_(max=len(changed) - 1)
                same = changed[at] == rows
                values[same] = before[at[same]]
        return values

    def dense(self) -> Tensor:
        """This version as a flat vector of its own."""
        out = self.array.clone()
        for changed, before in self._undo():
            out[changed] = before
        return out.view(-1)

    def difference(self) -> "tuple[RowTable, Tensor, Tensor]":
        """(the newest version, rows in which this one may differ from it, what they are here)."""
        newest = self
        while newest._next is not None:
            newest = newest._next
        rows = torch.unique(torch.cat([torch.empty(0, dtype=torch.int64), *(changed for changed, _ in self._undo())]))
        return newest, rows, self.take(rows)

    def _undo(self) -> list[tuple[Tensor, Tensor]]:
        """What to put back to come from the newest version to this one, in that order."""
        at, found = self, []
        while at._next is not None:
            assert at._rows is not None
            assert at._before is not None
            found.append((at._rows, at._before))
            at = at._next
        return found[::-1]

    # -- new versions -------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, RowSparse):
            return self.dense() + dense(other)
        if self.frozen or self._next is not None:
            return RowTable(self.dense().view(self.shape)) + other
        before = self.array.index_select(0, other.rows)
        return self._write(other.rows, before, before + other.values)

    def put(self, rows: Tensor, values: Tensor) -> "RowTable":
        """The version with these rows instead, which are sorted: how a copy follows a history that goes on elsewhere.

        Unlike a sum it goes on in the one array even from an old version: those after it are about to be forgotten.
        """
        if self.frozen:
            return RowTable(self.dense().view(self.shape)).put(rows, values)
        newest, changed, _ = self.difference()
        if len(changed):
            every = torch.unique(torch.cat([changed, rows]))
            every_value = self.take(every)
            every_value[torch.searchsorted(every, rows)] = values
            rows, values = every, every_value
        return newest._write(rows, newest.array.index_select(0, rows), values)

    def _write(self, rows: Tensor, before: Tensor, values: Tensor) -> "RowTable":
        """The next version: what is replaced is linked before the array is written."""
        self._rows, self._before, self._next = rows, before, RowTable(self.array)
        self.array.index_copy_(0, rows, values)
        return self._next

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, RowSparse):
            return self + -other
        if isinstance(other, RowTable) and other.array is self.array:
            return self._since(other)
        return self.dense() - dense(other)

    def _since(self, other: "RowTable") -> RowSparse:
        """What changed between two versions of one history: only rows that were touched."""
        rows = self.changed(other)
        return RowSparse(rows, self.take(rows) - other.take(rows), self.shape)

    def changed(self, other: "RowTable") -> Tensor:
        """The rows in which two versions of one history may differ."""
        found = [rows for version in (self, other) for rows, _ in version._undo()]
        rows: Tensor = torch.unique(torch.cat([torch.empty(0, dtype=torch.int64), *found]))
        return rows

    @classmethod
    def older(cls, newest: "RowTable", rows: Tensor, before: Tensor) -> "RowTable":
        """The version that differs from `newest` in these rows: the inverse of `difference`."""
        made = cls(newest.array)
        made._next, made._rows, made._before = newest, rows, before
        return made

    # -- as a vector --------------------------------------------------------------------------------------------

    def __radd__(self, other: Any) -> Any:
        return dense(other) + self.dense()

    def __rsub__(self, other: Any) -> Any:
        return dense(other) - self.dense()

    def __mul__(self, factor: float) -> Tensor:
        return self.dense() * factor

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Tensor:
        return self.dense() / divisor

    def __len__(self) -> int:
        return self.shape[0] * self.shape[1]

    def norm(self) -> Any:
        return self.dense().norm()

    @property
    def nbytes(self) -> int:
        return 4 * len(self)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*(dense(a) for a in args), **(kwargs or {}))


def dense(x: Any) -> Any:
    """A flat vector, here, whatever it was; vectors, and the voids of timing-only runs, as they are."""
    return x.dense() if isinstance(x, RowTable | RowSparse | PartedVector) else x


def rows_of(x: Any, rows: Tensor, width: int) -> Any:
    """Some rows of a vector or of a RowTable, copied."""
    return x.take(rows) if isinstance(x, RowTable) else x.view(-1, width).index_select(0, rows)
