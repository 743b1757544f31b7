"""Compressed pushes with error feedback."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from offbeat.core.effects import Call, Grad, View
from offbeat.core.solver import Round, World
from offbeat.core.void import Void
from offbeat.solvers.checks import choice, number, plain_sgd
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import Held, ParameterServer, Server, Worker, clipped


@dataclass(slots=True)
class FeedbackWorker:
    """A worker with what it has not sent yet."""

    view: View | None
    e: Any = None


class Compressed(ParameterServer):
    """p = g + e; push q = C(p); e <- p - q. The server's step is plain SGD with q, which keeps the feedback exact.

    `kind="topk"` keeps the largest `share` of the components; `kind="sign"` sends (||p||_1 / d) sign(p).
    For one worker and constant eta, x_t - eta e_t = x_0 - eta sum g exactly. Stich et al. 2018, "Sparsified SGD with
    memory"; Karimireddy et al. 2019, "Error feedback fixes SignSGD". Bytes are counted as sent uncompressed.
    """

    line = "ASGD with top-k or sign compression and error feedback"
    paper = "-"
    cite = ("stich2018", "karimireddy2019")
    records: ClassVar[tuple[type, ...]] = (Server, Worker, Held, FeedbackWorker)

    def __init__(self, opt: Factory, *, kind: str = "topk", share: float = 0.01) -> None:
        plain_sgd(opt, "compressed", "error feedback is exact only for a linear rule")
        self.kind, self.share = choice("kind", kind, ("topk", "sign")), number("share", share, 1e-12, 1.0)
        super().__init__(opt)

    def init_worker(self, rank: int, x0: Any, world: World) -> Any:
        return FeedbackWorker(super().init_worker(rank, x0, world).view)

    def round(self, w: Any) -> Round:
        if w.view is None:
            w.view = yield Call()
            return
        g = yield Grad(w.view.x, w.view.version)
        value = g.value if self.clip is None else clipped(g.value, self.clip)
        p = value if w.e is None else value + w.e
        q = compress(p, self.kind, self.share)
        g.value = q
        view = yield Call(g)
        w.view, w.e = view, p - q


def compress(p: Any, kind: str, share: float) -> Any:
    """C(p): top-k leaves ||C(p) - p||^2 <= (1 - k/d) ||p||^2; sign keeps the 1-norm."""
    if isinstance(p, Void):
        return p
    if kind == "sign":
        return p.sign() * p.abs().mean()
    k = max(1, round(share * p.numel()))
    largest = torch.topk(p.abs(), k, sorted=False).indices
    return torch.zeros_like(p).index_copy_(0, largest, p[largest])
