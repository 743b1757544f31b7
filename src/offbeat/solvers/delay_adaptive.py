"""ASGD with smaller steps for larger delays than the number of workers explains."""

from typing import Any

from offbeat.optim.steppers import Factory
from offbeat.solvers.options import choice, number, without_effect
from offbeat.solvers.parameter_server import Arrival, ParameterServer, Server, Worker


class DelayAdaptive(ParameterServer[Server, Worker]):
    """Smaller steps for larger delays than the number of workers explains, by one of two rules.

    Mishchenko et al. 2022: eta_t = eta W / max(W, tau + 1); their delay counts the gradient's own update.
    Koloskova et al. 2022 [reconstructed]: eta if tau <= W, else min(eta, 1 / (4 L tau)) or, the paper's other option,
    the gradient is dropped.

    Args:
        opt: makes the server's optimizer; its learning rate is eta.
        rule: "mishchenko" or "koloskova". Default: "mishchenko".
        smoothness: L, for Koloskova's rule; without it, late gradients are dropped. Default: none.
    """

    line = "ASGD with smaller steps for delays beyond the number of workers"
    paper = "-"
    needs_answer = None
    cite = ("mishchenko2022", "koloskova2022")

    def __init__(self, opt: Factory, *, rule: str = "mishchenko", smoothness: float | None = None) -> None:
        self.rule = choice("rule", rule, ("mishchenko", "koloskova"))
        self.smoothness = None if smoothness is None else number("smoothness", smoothness, 1e-300)
        if self.rule == "mishchenko":
            without_effect("smoothness", smoothness, None, "with the rule 'mishchenko'")
        drops = self.rule == "koloskova" and self.smoothness is None
        self.at_once = not drops
        super().__init__(opt, correct=self._scale, gate=self._within if drops else None)

    def _within(self, s: Server, arrival: Arrival) -> bool:
        return arrival.tau <= s.world.workers

    def _scale(self, s: Server, arrival: Arrival) -> tuple[Any, float]:
        W, L, tau, scale = s.world.workers, self.smoothness, arrival.tau, 1.0
        if self.rule == "mishchenko":
            scale = W / max(W, tau + 1)
        elif tau > W and L is not None:
            scale = min(s.opt.lr, 1 / (4 * L * tau)) / s.opt.lr
        return arrival.gradient.value, scale
