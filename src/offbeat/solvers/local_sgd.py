"""Local SGD and what is built on it: many steps alone, then the workers come together."""

from typing import Any, ClassVar

import torch

from offbeat.core.effects import AllReduce, Grad, Reduced
from offbeat.core.errors import ConfigError
from offbeat.core.solver import Round, World
from offbeat.solvers.checks import choice, nobody_joins, number, whole
from offbeat.solvers.local import Local, Replica
from offbeat.solvers.optimizers import Factory, Fresh, optimizer_factory


class LocalSGD(Local):
    """H steps x_i <- opt(x_i, g_i(x_i)) on every worker, then x_i <- (1/W) sum_j x_j.

    `momentum` says what becomes of the optimizers' moments when workers meet: each keeps its own ("local"), all forget
    ("reset"), or they are averaged too ("average"): three different algorithms. `post` epochs of H = 1 come first:
    post-local SGD (Lin et al. 2020 took H = 16). Stich 2019, "Local SGD converges fast and communicates little".
    The mean of the workers is evaluated. A gradient is used where it was computed: no staleness.
    """

    line = "H steps alone, then the parameters are averaged"
    paper = "-"
    cite: ClassVar[tuple[str, ...]] = ("stich2019local", "lin2020postlocal")
    asks: ClassVar[frozenset[type]] = frozenset({Grad, AllReduce})

    def __init__(self, opt: Factory, *, H: int = 16, momentum: str = "local", post: float = 0.0) -> None:
        super().__init__(opt)
        self.H, self.post = whole("H", H), number("post", post)
        self.momentum = choice("momentum", momentum, ("local", "reset", "average"))

    def init_server(self, x0: Any, world: World) -> Any:
        nobody_joins(world, "local SGD")
        if self.post and world.samples_per_epoch is None:
            raise ConfigError(f"solver.post counts epochs, and this task has none, got {self.post!r}")
        return super().init_server(x0, world)

    def init_worker(self, rank: int, x0: Any, world: World) -> Replica:
        w = super().init_worker(rank, x0, world)
        post = self.post * (world.samples_per_epoch or 0)
        w.memory = {"post": post, "steps": 1 if post else self.H, "alone": 0}
        return w

    def round(self, w: Replica) -> Round:
        if w.memory["alone"] == w.memory["steps"]:
            yield from self._meet(w)
            return
        g = yield Grad(w.x)
        w.memory["alone"] += 1
        yield from self.step(w, w.x, g)

    def _meet(self, w: Replica) -> Round:
        """A round of its own: what it changes, it changes at its end."""
        moments = w.opt.moments() if self.momentum == "average" else []
        mine = torch.cat([w.x, *moments]) if moments else w.x
        mean = yield AllReduce(mine)
        if moments:
            n = len(w.x)
            w.opt.replace_moments(mean.value[n:])
            mean = Reduced(mean.value[:n].clone(), mean.weight, mean.members, mean.work)
        elif self.momentum == "reset":
            w.opt.reset()
        w.x = self.outer(w, mean)
        w.memory["alone"] = 0
        w.memory["steps"] = 1 if mean.work < w.memory["post"] else self.H

    def outer(self, w: Replica, mean: Reduced) -> Any:
        """Where everybody goes on from: the mean."""
        return mean.value


class SlowMo(LocalSGD):
    """Local SGD, then a slow momentum step: u <- beta u + (x_0 - xbar) / gamma; x <- x_0 - alpha gamma u.

    x_0 is where the H steps began, xbar the mean of where they ended, gamma the inner learning rate of the moment (for
    adaptive optimizers in name only). Wang et al. 2020, "SlowMo: improving communication-efficient distributed SGD with
    slow momentum"; defaults of torchdistx. beta = 0, alpha = 1 is local SGD.
    """

    line = "local SGD with a slow momentum over the averages"
    cite = ("wang2020slowmo",)

    def __init__(
        self, opt: Factory, *, H: int = 48, beta: float = 0.5, alpha: float = 1.0, momentum: str = "local"
    ) -> None:
        super().__init__(opt, H=H, momentum=momentum)
        self.beta, self.alpha = number("beta", beta, 0.0, 1.0, open_end=True), number("alpha", alpha)

    def init_worker(self, rank: int, x0: Any, world: World) -> Replica:
        w = super().init_worker(rank, x0, world)
        w.memory["x0"], w.memory["u"] = x0, 0.0 * x0
        return w

    def outer(self, w: Replica, mean: Reduced) -> Any:
        gamma, x0 = self.eta * self.rate(mean.work), w.memory["x0"]
        u = self.beta * w.memory["u"] + (x0 - mean.value) / gamma
        x = x0 - self.alpha * gamma * u
        w.memory["x0"], w.memory["u"] = x, u
        return x


class DiLoCo(LocalSGD):
    """Local steps by an inner optimizer, then an outer one on D = x_0 - (1/W) sum_i x_i as its gradient.

    By default Nesterov: m <- beta m + D; x <- x_0 - gamma (D + beta m), with gamma = `outer_lr` and beta =
    `outer_momentum`; `outer` names any other optimizer. The inner optimizers keep their state. Douillard et al. 2023,
    "DiLoCo: distributed low-communication training of language models", took AdamW inside, H = 500, 0.7 and 0.9
    [reconstructed]. With `outer_lr=1` and `outer_momentum=0` it is local SGD.
    """

    line = "local steps, then a Nesterov step on how far they came"
    cite = ("douillard2023diloco",)

    def __init__(
        self, opt: Factory, *, H: int = 50, outer: str = "sgd", outer_lr: float = 0.7, outer_momentum: float = 0.9
    ) -> None:
        super().__init__(opt, H=H)
        options: dict[str, Any] = {"lr": number("outer_lr", outer_lr)}
        if outer.lower() == "sgd":
            momentum = number("outer_momentum", outer_momentum, 0.0, 1.0, open_end=True)
            options |= {"momentum": momentum, "nesterov": momentum > 0}
        self.outer_optimizer = optimizer_factory(outer, **options)

    def init_worker(self, rank: int, x0: Any, world: World) -> Replica:
        w = super().init_worker(rank, x0, world)
        w.memory["x0"], w.memory["outer"] = x0, Fresh(self.outer_optimizer, world.layout)
        return w

    def revive(self, w: Replica, world: World) -> Replica:
        saved, w.memory["outer"] = w.memory["outer"].saved, Fresh(self.outer_optimizer, world.layout)
        w.memory["outer"].load(saved)
        return super().revive(w, world)

    def outer(self, w: Replica, mean: Reduced) -> Any:
        x0 = w.memory["x0"]
        w.memory["x0"] = w.memory["outer"].step_from(x0, x0 - mean.value)
        return w.memory["x0"]
