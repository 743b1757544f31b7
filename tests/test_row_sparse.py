"""Row-sparse values and the table they are added to: as if they were dense, and as if nothing were ever written."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.core.codec import Codec
from offbeat.core.sparse import RowSparse, RowTable, dense, rows_of

R, D = 7, 3


def values(seed, n):
    return torch.randint(-8, 8, (n, D), generator=torch.Generator().manual_seed(seed)).float()


def sparse(*rows, seed=0):
    return RowSparse.of(torch.tensor(rows, dtype=torch.int64), values(seed, len(rows)), (R, D))


def test_rows_that_come_twice_are_summed():
    g = sparse(5, 2, 5)
    v = values(0, 3)
    assert g.rows.tolist() == [2, 5]
    assert torch.equal(g.values, torch.stack([v[1], v[0] + v[2]]))


deltas = st.lists(st.lists(st.integers(0, R - 1), max_size=5), min_size=1, max_size=6)


@given(deltas)
def test_arithmetic_is_that_of_dense_vectors(rows):
    x = torch.arange(R * D).float()
    g, h = sparse(*rows[0], seed=1), sparse(*rows[-1], seed=2)
    dg, dh = g.dense(), h.dense()
    for got, want in [
        (x + g, x + dg),
        (x - g, x - dg),
        (g + x, x + dg),
        (g - x, dg - x),
        (-g, -dg),
        (0.5 * g, 0.5 * dg),
        (g * 0.5, 0.5 * dg),
        (g / 4, dg / 4),
        (g + h, dg + dh),
        (g - h, dg - dh),
        (x - 0.5 * g, x - 0.5 * dg),
        (torch.add(g, h, alpha=0.5), dg + 0.5 * dh),
    ]:
        assert torch.equal(dense(got), want)
    assert torch.equal(g.at(range(R * D)[1::2]), dg[1::2])
    assert g.norm().item() == pytest.approx(dg.norm().item())
    parts = [g.part(k, 3) for k in range(3)]
    assert torch.equal(sum((p.dense() for p in parts), torch.zeros(R * D)), dg)


@given(deltas, st.randoms())
def test_every_version_of_a_table_stays_as_it_was(rows, rng):
    """Versions branch anywhere: from the newest, from an old one, from the frozen beginning."""
    start = torch.arange(R * D).float()
    versions = [(RowTable(start.view(R, D).clone(), frozen=True), start)]
    for k, some in enumerate(rows):
        table, vector = versions[rng.randrange(len(versions))]
        delta = sparse(*some, seed=k)
        versions.append((table - delta, vector - delta.dense()))
    for table, vector in versions:
        assert torch.equal(table.dense(), vector)
        some = torch.tensor([0, 3, 6, 3])
        assert torch.equal(table.take(some), vector.view(R, D)[some])
        assert torch.equal(rows_of(table, some, D), rows_of(vector, some, D))
    for one, x in versions:
        for other, y in versions:
            assert torch.equal(dense(one - other), x - y)
            assert torch.equal(one + other, x + y)


def test_adding_writes_into_the_one_array_there_is():
    x = RowTable(torch.zeros(R, D))
    y = x + sparse(1)
    z = y + sparse(2)
    assert z.array is x.array
    assert (y + sparse(3)).array is not x.array  # y is history: a copy goes on from there


def test_a_frozen_table_is_never_written_to():
    x = RowTable(torch.zeros(R, D), frozen=True)
    kept = x.array.clone()
    assert (x + sparse(1)).array is not x.array
    assert torch.equal(x.array, kept)


def test_versions_that_nobody_holds_are_freed():
    import gc
    import weakref

    freed = []

    x = RowTable(torch.zeros(R, D))
    for k in range(50):
        rows = torch.tensor([k % R])
        weakref.finalize(rows, freed.append, k)
        x = x + RowSparse(rows, values(k, 1), (R, D))
        del rows
    gc.collect()
    assert len(freed) >= 49


def test_the_difference_of_two_versions_has_only_the_rows_that_changed():
    x = RowTable(torch.zeros(R, D))
    y = x + sparse(1, 4)
    z = y + sparse(4, 5)
    change = z - x
    assert isinstance(change, RowSparse)
    assert change.rows.tolist() == [1, 4, 5]


def test_a_checkpoint_keeps_versions_apart_and_what_is_one_together():
    codec = Codec()
    x = RowTable(torch.zeros(R, D))
    y = x + sparse(1, 4)
    z = y + sparse(4, 5)
    other = RowTable(torch.ones(R, D), frozen=True)
    tensors = {}
    tree = codec.encode({"a": [x, z], "b": (z, y, other), "g": sparse(2)}, tensors)
    assert sum(t.numel() == R * D for t in tensors.values()) == 2, "one array a history"
    back = codec.decode(tree, {k: t.clone() for k, t in tensors.items()})
    (bx, bz), (bz2, by, bother) = back["a"], back["b"]
    assert bz is bz2
    for old, new in ((x, bx), (y, by), (z, bz), (other, bother)):
        assert torch.equal(old.dense(), new.dense())
    w = bz + sparse(1)
    assert torch.equal(bx.dense(), x.dense())
    assert torch.equal(w.dense(), z.dense() + sparse(1).dense())
    assert bother.frozen


def test_what_a_row_sparse_value_cannot_do_is_said():
    with pytest.raises(TypeError, match="a row-sparse value has no"):
        torch.sign(sparse(1))
