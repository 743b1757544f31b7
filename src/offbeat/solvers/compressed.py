"""Compressed pushes with error feedback."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from offbeat.optim.steppers import Factory
from offbeat.solvers.options import choice, number, plain_sgd
from offbeat.solvers.parameter_server import Held, ParameterServer, Server, Worker


@dataclass(slots=True)
class CompressingWorker(Worker):
    """A worker that remembers what it has not pushed yet."""

    e: Any = None


class Compressed(ParameterServer[Server, CompressingWorker]):
    """p = g + e; push q = C(p); e <- p - q. The server's step is plain SGD with q, which keeps the feedback exact.

    For one worker and constant eta, x_t - eta e_t = x_0 - eta sum g exactly. Stich et al. 2018, "Sparsified SGD with
    memory"; Karimireddy et al. 2019, "Error feedback fixes SignSGD". Bytes are counted as sent uncompressed.

    Args:
        opt: makes the server's optimizer, which must be plain SGD.
        kind: C, "topk" (the largest components) or "sign", which is (||p||_1 / d) sign(p). Default: "topk".
        share: k / d, the share of the components that "topk" keeps. Default: 0.01.
    """

    line = "ASGD with top-k or sign compression and error feedback"
    paper = "-"
    needs_answer = None
    cite = ("stich2018", "karimireddy2019")
    vectors = 5
    records: ClassVar[tuple[type, ...]] = (Server, CompressingWorker, Held)
    worker_state = CompressingWorker
    elementwise = True
    at_once = True

    def __init__(self, opt: Factory, *, kind: str = "topk", share: float = 0.01) -> None:
        plain_sgd(opt, "compressed", "error feedback is exact only for a linear rule")
        self.kind, self.share = choice("kind", kind, ("topk", "sign")), number("share", share, 1e-12, 1.0)
        super().__init__(opt, push=self._feed_back)

    def _feed_back(self, w: CompressingWorker, g: Any) -> Any:
        p = g if w.e is None else g + w.e
        q = compress(p, self.kind, self.share)
        w.e = p - q
        return q


def compress(p: Any, kind: str, share: float) -> Any:
    """C(p): top-k leaves ||C(p) - p||^2 <= (1 - k/d) ||p||^2; sign keeps the 1-norm."""
    if kind == "sign":
        return p.sign() * p.abs().mean()
    k = max(1, round(share * p.numel()))
    largest = torch.topk(p.abs(), k, sorted=False).indices
    return torch.zeros_like(p).index_copy_(0, largest, p[largest])
