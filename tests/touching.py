"""A task of many rows whose batches need few, and a count of every number that its processes touch."""

import os

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from offbeat.core.effects import Gradient
from offbeat.core.layout import Layout
from offbeat.core.seeds import generator
from offbeat.core.sparse import RowSparse, RowTable, rows_of
from offbeat.core.task import Point

WIDTH, ROWS_A_BATCH = 4, 10


class Touched(TorchDispatchMode):
    """One line a tensor operation: the most numbers that it reads or writes of any one tensor."""

    def __init__(self, log):
        super().__init__()
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        os.write(self._log, f"{self._touched(func, args, out)} {func}\n".encode())
        return out

    def _touched(self, func, args, out):
        name = func._schema.name.removeprefix("aten::")
        tensors = [a for a in (*args, out) if isinstance(a, torch.Tensor)]
        if name == "index_select":
            return out.numel()
        if name in ("index_copy_", "index_add_"):
            return args[3].numel()
        inputs = {t.untyped_storage().data_ptr() for t in tensors if t is not out}
        if not name.endswith("_") and isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() in inputs:
            return 0  # a view
        return max((t.numel() for t in tensors), default=0)


class ManyRows:
    """f(x) = |x - 1|^2 / 2 over the rows of a batch; those are drawn evenly from all."""

    name, size, row_sparse = "many-rows", None, True

    def __init__(self, rows, log=None):
        self._shape, self._log, self._maker = (rows, WIDTH), log, os.getpid()
        self.layout = Layout.of([("rows", self._shape)])
        self.nbytes = 4 * self.layout.size

    def init(self, seed):
        if self._log is not None and os.getpid() != self._maker:
            Touched(self._log).__enter__()  # the forker makes the point; those it forks are counted, too
        return Point(RowTable(torch.zeros(self._shape), frozen=True))

    def gradient(self, point, batch, key):
        rows = torch.from_numpy(generator(key, "rows", 0).choice(self._shape[0], ROWS_A_BATCH, replace=False)).sort()[0]
        d = rows_of(point.x, rows, WIDTH) - 1
        return Gradient(RowSparse(rows, d, self._shape), float(d.norm()), 1)

    def evaluate(self, point, mapper):
        return {"loss": 0.0}

    def describe(self):
        return {"task": self.name}


def read(log):
    with open(log) as lines:
        return [int(line.split()[0]) for line in lines]
