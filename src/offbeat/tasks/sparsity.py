"""How sparse a problem is: the hypergraph quantities Omega, Delta and rho (wongpanich2020, 3.3; Niu et al. 2011).

f(w) = sum_{e in E} f_e(w_e): the nodes are the components of w, and each term is an edge e over the components that it
touches. For a linear model an edge is a sample, over its features that are not zero.
"""

from typing import Any, NamedTuple

import numpy as np

from offbeat.core.errors import DataError
from offbeat.core.feed import Indices

_ENTRIES = 4_000_000  # of the intersection matrix at a time


class Sparsity(NamedTuple):
    """Small values are what lock-free updates need: edges that are short, and seldom meet."""

    omega: int
    """(5) Omega = max_e |e|: the most components that one term touches."""
    delta: float
    """(6) Delta = max_v |{e : v in e}| / |E|: the largest share of terms that touch one component."""
    rho: float
    """(7) rho = max_e |{e' : e' and e intersect}| / |E|: the largest share of terms that one meets, itself included."""


def hypergraph(data: Any) -> Sparsity:
    """Of a matrix with one row a term: anything numpy or scipy.sparse takes; entries that are not zero count."""
    from scipy import sparse

    matrix = data if sparse.issparse(data) else np.asarray(data)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise DataError(f"sparsity is that of a matrix with rows and columns, got shape {matrix.shape}")
    touches = (sparse.csr_array(matrix) != 0).tocsr().astype(np.int32)
    num_edges, num_nodes = touches.shape
    meets = 0
    other = touches.T.tocsc()
    at_once = max(1, _ENTRIES // num_edges)
    for start in range(0, num_edges, at_once):
        common = touches[start : start + at_once] @ other
        meets = max(meets, int(np.diff(common.tocsr().indptr).max()))
        if meets == num_edges:
            break
    return Sparsity(
        omega=int(np.diff(touches.indptr).max()),
        delta=float(np.bincount(touches.indices, minlength=num_nodes).max()) / num_edges,
        rho=meets / num_edges,
    )


def hypergraph_of(columns: Indices, num_nodes: int) -> Sparsity:
    """The same, of terms that touch equally many components: one row of column numbers each."""
    from scipy import sparse

    n, k = columns.shape
    ones = np.ones(n * k, dtype=np.int32)
    return hypergraph(sparse.csr_array((ones, columns.reshape(-1), np.arange(0, n * k + 1, k)), shape=(n, num_nodes)))
