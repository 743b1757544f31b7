"""Skip-gram with negative sampling: the arithmetic, compiled with numba, float32, without the interpreter lock.

For a window with centre o_0, contexts c and negatives o_1 ... o_K (rows u of `inputs`, rows v of `outputs`):

    f_ck = u_c . v_k        e_ck = y_k - sigma(f_ck)        y_0 = 1, y_k = 0
    loss = - sum_c [ log sigma(f_c0) + sum_k log sigma(-f_ck) ]
    - d loss / d u_c = sum_k e_ck v_k        - d loss / d v_k = sum_c e_ck u_c

All of a window is taken at one point: three small matrix products (Ji et al., "Parallelizing word2vec in shared and
distributed memory", 2016). A negative that is the centre itself counts for nothing. One kernel serves two purposes:
with `inputs` and `outputs` as their own targets it trains in place (plain, or Hogwild! when several threads share the
matrices without a lock); with other targets it adds up a gradient at a point that stays as it is.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# Sums may be reordered and fused, for vector instructions; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz"}
_F = np.float32


def _prefetched(typingctx: Any, array: Any, row: Any, column: Any) -> Any:
    """Asks for one cache line of a matrix, to be written soon."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        view = context.make_array(kind)(context, builder, args[0])
        at = cgutils.get_item_pointer(context, builder, kind, view, [args[1], args[2]], wraparound=False)  # type: ignore[no-untyped-call]
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        ask = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], fnty=ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        builder.call(ask, [builder.bitcast(at, byte), number(1), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, row, column), generate


_prefetch: Any = intrinsic(_prefetched)


@njit(inline="always", fastmath=FAST)
def sigmoid(x: Any) -> Any:
    """(1 + tanh(x/2)) / 2, with tanh as a quotient of polynomials: within 2e-7, and no call to stop vector code."""
    x = min(max(_F(0.5) * x, _F(-9.0)), _F(9.0))
    y = x * x
    p = _F(-2.76076847742355e-16)
    p = p * y + _F(2.00018790482477e-13)
    p = p * y + _F(-8.60467152213735e-11)
    p = p * y + _F(5.12229709037114e-08)
    p = p * y + _F(1.48572235717979e-05)
    p = p * y + _F(6.37261928875436e-04)
    p = p * y + _F(4.89352455891786e-03)
    q = _F(1.19825839466702e-06)
    q = q * y + _F(1.18534705686654e-04)
    q = q * y + _F(2.26843463243900e-03)
    q = q * y + _F(4.89352518554385e-03)
    return _F(0.5) + _F(0.5) * (x * p / q)


@lru_cache(maxsize=32)
def kernel(dim: int, negatives: int) -> Callable[..., Any]:
    """The kernel for one size of vectors and number of negatives: constants that the compiler unrolls."""
    D, K1 = dim, negatives + 1
    KP = (K1 + 2) // 3 * 3  # outputs are taken three at a time; rows beyond K1 are zero

    @njit(nogil=True, cache=True, fastmath=FAST, error_model="numpy")
    def run(
        inputs: Any,
        outputs: Any,
        to_inputs: Any,
        to_outputs: Any,
        centres: Any,
        starts: Any,
        contexts: Any,
        drawn: Any,
        rate: Any,
        every: Any,
    ) -> Any:
        """to_inputs += rate (-d loss / d inputs), likewise outputs. (loss, pairs) over every `every`-th window."""
        most = 0
        for i in range(centres.shape[0]):
            most = max(most, starts[i + 1] - starts[i])
        rows = np.empty(K1, np.int64)
        v = np.zeros((KP, D), np.float32)
        g = np.empty((K1, D), np.float32)
        e = np.zeros((most + 3, KP), np.float32)
        flat = e.reshape(-1)
        loss = 0.0
        pairs = 0
        rate = np.float32(rate)
        for i in range(centres.shape[0]):
            if i + 1 < centres.shape[0]:
                for k in range(K1 - 1):
                    for d in range(0, D, 16):
                        _prefetch(outputs, np.int64(drawn[i + 1, k]), np.int64(d))
            first = starts[i]
            C = starts[i + 1] - first
            rows[0] = centres[i]
            for k in range(1, K1):
                rows[k] = drawn[i, k - 1]
            for k in range(K1):
                for d in range(D):
                    v[k, d] = outputs[rows[k], d]
                    g[k, d] = 0.0
            # f_ck, for two contexts and three outputs at a time
            c = 0
            while c + 2 <= C:
                u0, u1 = inputs[contexts[first + c]], inputs[contexts[first + c + 1]]
                for k in range(0, KP, 3):
                    s00 = s01 = s02 = s10 = s11 = s12 = _F(0)
                    for d in range(D):
                        a, b = u0[d], u1[d]
                        v0, v1, v2 = v[k, d], v[k + 1, d], v[k + 2, d]
                        s00 += a * v0
                        s01 += a * v1
                        s02 += a * v2
                        s10 += b * v0
                        s11 += b * v1
                        s12 += b * v2
                    e[c, k], e[c, k + 1], e[c, k + 2] = s00, s01, s02
                    e[c + 1, k], e[c + 1, k + 1], e[c + 1, k + 2] = s10, s11, s12
                c += 2
            if c < C:
                u0 = inputs[contexts[first + c]]
                for k in range(K1):
                    s0 = _F(0)
                    for d in range(D):
                        s0 += u0[d] * v[k, d]
                    e[c, k] = s0
            if i % every == 0:
                pairs += C
                for c in range(C):
                    for k in range(K1):
                        if k == 0 or rows[k] != rows[0]:
                            f = -e[c, k] if k == 0 else e[c, k]
                            loss += max(f, _F(0)) + np.log1p(np.exp(-abs(f)))
            # e_ck, times the rate
            for j in range(C * KP):
                flat[j] = -rate * sigmoid(flat[j])
            for c in range(C):
                e[c, 0] += rate
            for k in range(1, K1):
                if rows[k] == rows[0]:
                    for c in range(C):
                        e[c, k] = 0.0
            # sum_c e_ck u_c
            c = 0
            while c + 4 <= C:
                u0, u1 = inputs[contexts[first + c]], inputs[contexts[first + c + 1]]
                u2, u3 = inputs[contexts[first + c + 2]], inputs[contexts[first + c + 3]]
                for k in range(K1):
                    e0, e1, e2, e3 = e[c, k], e[c + 1, k], e[c + 2, k], e[c + 3, k]
                    for d in range(D):
                        g[k, d] += e0 * u0[d] + e1 * u1[d] + e2 * u2[d] + e3 * u3[d]
                c += 4
            if c + 2 <= C:
                u0, u1 = inputs[contexts[first + c]], inputs[contexts[first + c + 1]]
                for k in range(K1):
                    e0, e1 = e[c, k], e[c + 1, k]
                    for d in range(D):
                        g[k, d] += e0 * u0[d] + e1 * u1[d]
                c += 2
            if c < C:
                u0 = inputs[contexts[first + c]]
                for k in range(K1):
                    e0 = e[c, k]
                    for d in range(D):
                        g[k, d] += e0 * u0[d]
            # sum_k e_ck v_k
            for c in range(C):
                u0 = to_inputs[contexts[first + c]]
                for d in range(D):
                    x = _F(0)
                    for k in range(K1):
                        x += e[c, k] * v[k, d]
                    u0[d] += x
            for k in range(K1):
                row = to_outputs[rows[k]]
                for d in range(D):
                    row[d] += g[k, d]
        return loss, pairs

    return run
