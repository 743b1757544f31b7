"""Rules that weigh a gradient by its staleness. The step is scaled, not the gradient: Adam would cancel that."""

from math import sqrt
from typing import Any

import torch

from offbeat.core.errors import ConfigError
from offbeat.core.solver import World
from offbeat.solvers.checks import choice, number, whole
from offbeat.solvers.optimizers import Factory
from offbeat.solvers.parameter_server import Arrival, ParameterServer, Server


def inverse(tau: int) -> float:
    """eta(tau) = eta_0 / tau, eta_0 when fresh (Zhang et al. 2015 count tau from 1)."""
    return 1.0 / max(1, tau)


class StalenessAware(ParameterServer):
    """x <- opt(x, g) at eta_0 / tau. Zhang et al. 2016, "Staleness-aware async-SGD" [reconstructed]."""

    line = "ASGD at learning rate eta / tau"
    paper = "-"
    cite = ("zhang2016staleness",)

    def __init__(self, opt: Factory) -> None:
        super().__init__(opt, correct=_by(inverse))


class Softsync(ParameterServer):
    """n-softsync: step after c = floor(W / n) gradients, x <- x - (1/c) sum_l eta(tau_l) g_l.

    n = W is ASGD with eta / tau; n = 1 waits for any W gradients, not one of each. Mean staleness (W - 1) / c.
    Gupta, Zhang and Milthorpe 2016; Zhang et al. 2016 [reconstructed].
    """

    line = "a step after every W/n gradients, each at eta / tau"
    paper = "-"
    cite = ("zhang2016staleness",)

    def __init__(self, opt: Factory, *, n: int = 1) -> None:
        self.n = whole("n", n)
        super().__init__(opt, correct=_by(inverse), collect=self._enough)

    def init_server(self, x0: object, world: World) -> Server:
        if self.n > world.workers:
            raise ConfigError(f"solver.n must be at most the {world.workers} workers, got {self.n}")
        return super().init_server(x0, world)

    def _enough(self, s: Server) -> int:
        c = s.world.workers // self.n
        return c if len(s.held) >= c else 0


class DelayAdaptive(ParameterServer):
    """Smaller steps for larger delays than the number of workers explains.

    `rule="mishchenko"`: eta_t = eta W / max(W, tau + 1) (Mishchenko et al. 2022; their delay counts the gradient's own
    update). `rule="koloskova"`: eta if tau <= W, else min(eta, 1 / (4 L tau)) with `smoothness` L; without L the
    gradient is dropped, the paper's other option (Koloskova et al. 2022 [reconstructed]).
    """

    line = "ASGD with smaller steps for delays beyond the number of workers"
    paper = "-"
    cite = ("mishchenko2022", "koloskova2022")

    def __init__(self, opt: Factory, *, rule: str = "mishchenko", smoothness: float | None = None) -> None:
        self.rule = choice("rule", rule, ("mishchenko", "koloskova"))
        self.smoothness = None if smoothness is None else number("smoothness", smoothness, 1e-300)
        drops = self.rule == "koloskova" and self.smoothness is None
        super().__init__(opt, correct=self._scale, gate=self._within if drops else None)

    def _within(self, s: Server, arrival: Arrival) -> bool:
        return arrival.tau <= s.world.workers

    def _scale(self, s: Server, arrival: Arrival) -> tuple[Any, float]:
        W, tau = s.world.workers, arrival.tau
        if self.rule == "mishchenko":
            scale = W / max(W, tau + 1)
        else:
            eta = s.opt.lr
            late = tau > W and self.smoothness is not None
            scale = min(eta, 1 / (4 * (self.smoothness or 1.0) * tau)) / eta if late else 1.0
        return arrival.gradient.value, scale


class GapAware(ParameterServer):
    """g <- g / (1 + |x - x_read| / C), elementwise, C = eta (sqrt(EMA(v^2) / (1 - Gamma^k)) + eps).

    v is the last step's direction (momentum included) and EMA decays by `gamma`; the gap is measured in units of the
    distance that one step usually covers. Barkai, Hakimi and Schuster 2020, "Gap-aware mitigation of gradient
    staleness", for SGD with or without momentum; under other optimizers v is the gradient.
    """

    line = "ASGD that shrinks each component by how far the parameters have moved"
    paper = "-"
    cite = ("barkai2020",)
    elementwise = True

    def __init__(self, opt: Factory, *, gamma: float = 0.999, eps: float = 1e-8) -> None:
        self.gamma, self.eps = number("gamma", gamma, 0.0, 1.0, open_end=True), number("eps", eps)
        super().__init__(opt, correct=self._shrink)

    def _shrink(self, s: Server, arrival: Arrival) -> tuple[Any, float]:
        g, eta = arrival.gradient.value, s.opt.lr * self.rate(s.samples)
        k, ema = s.memory.get("k", 0), s.memory.get("ema")
        if ema is not None:
            C = eta * ((ema / (1 - self.gamma**k)) ** 0.5 + self.eps)
            g = g / (1 + (s.x - s.sent[arrival.worker].x).abs() / C)
        v = self._momentum(s, g)
        s.memory["ema"] = (1 - self.gamma) * v * v if ema is None else self.gamma * ema + (1 - self.gamma) * v * v
        s.memory["k"] = k + 1
        return g, 1.0

    def _momentum(self, s: Server, g: Any) -> Any:
        """The direction that the optimizer is about to take: mu v + g."""
        made, moments = getattr(s.opt, "torch", None), s.opt.moments()
        if not isinstance(made, torch.optim.SGD) or not moments:
            return g
        v = moments[0] if len(moments) == 1 else s.world.layout.flatten(moments)
        return made.param_groups[0]["momentum"] * v + g


def _by(scale: Any) -> Any:
    return lambda s, arrival: (arrival.gradient.value, scale(arrival.tau))


def root(tau: int) -> float:
    """FedBuff's weight 1 / sqrt(1 + tau)."""
    return 1.0 / sqrt(1 + tau)
