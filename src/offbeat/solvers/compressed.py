"""Compressed pushes with error feedback."""

from typing import Any

import torch

from offbeat.core.void import Void
from offbeat.solvers.checks import choice, number, plain_sgd
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import ParameterServer


class Compressed(ParameterServer):
    """p = g + e; push q = C(p); e <- p - q. The server's step is plain SGD with q, which keeps the feedback exact.

    `kind="topk"` keeps the largest `share` of the components; `kind="sign"` sends (||p||_1 / d) sign(p).
    For one worker and constant eta, x_t - eta e_t = x_0 - eta sum g exactly. Stich et al. 2018, "Sparsified SGD with
    memory"; Karimireddy et al. 2019, "Error feedback fixes SignSGD". Bytes are counted as sent uncompressed.
    """

    line = "ASGD with top-k or sign compression and error feedback"
    paper = "-"
    cite = ("stich2018", "karimireddy2019")
    elementwise = True

    def __init__(self, opt: Factory, *, kind: str = "topk", share: float = 0.01) -> None:
        plain_sgd(opt, "compressed", "error feedback is exact only for a linear rule")
        self.kind, self.share = choice("kind", kind, ("topk", "sign")), number("share", share, 1e-12, 1.0)
        super().__init__(opt, push=self._feed_back)

    def _feed_back(self, e: Any, g: Any) -> tuple[Any, Any]:
        p = g if e is None else g + e
        q = compress(p, self.kind, self.share)
        return p - q, q


def compress(p: Any, kind: str, share: float) -> Any:
    """C(p): top-k leaves ||C(p) - p||^2 <= (1 - k/d) ||p||^2; sign keeps the 1-norm."""
    if isinstance(p, Void):
        return p
    if kind == "sign":
        return p.sign() * p.abs().mean()
    k = max(1, round(share * p.numel()))
    largest = torch.topk(p.abs(), k, sorted=False).indices
    return torch.zeros_like(p).index_copy_(0, largest, p[largest])
