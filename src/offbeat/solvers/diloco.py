"""DiLoCo: local steps by an inner optimizer, then a step of an outer one."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from offbeat.core.effects import Reduced
from offbeat.core.solver import World
from offbeat.optim.steppers import Factory, optimizer_factory, refusal
from offbeat.optim.worker_stepper import WorkerStepper, revived
from offbeat.solvers.local_sgd import LocalReplica, LocalSGD
from offbeat.solvers.options import number, without_effect
from offbeat.solvers.replica import NoServer, Replica


@dataclass(slots=True)
class DiLoCoReplica(LocalReplica):
    """A worker that knows where its steps began, and has the outer optimizer."""

    x0: Any = None
    outer: WorkerStepper = field(init=False)


class DiLoCo(LocalSGD[DiLoCoReplica]):
    """Local steps by an inner optimizer, then an outer one on D = x_0 - (1/W) sum_i x_i as its gradient.

    By default Nesterov: m <- beta m + D; x <- x_0 - gamma (D + beta m). The inner optimizers keep their state.
    Douillard et al. 2023, "DiLoCo: distributed low-communication training of language models", took AdamW inside,
    H = 500, 0.7 and 0.9 [reconstructed]. With `outer_lr=1` and `outer_momentum=0` it is local SGD.

    Args:
        opt: makes the inner optimizer of each worker.
        H: H, the steps between two meetings. Default: 50.
        outer: the outer optimizer, by name. Default: "sgd", with Nesterov's momentum.
        outer_lr: gamma, its learning rate. Default: 0.7.
        outer_momentum: beta, its momentum, for "sgd" alone. Default: 0.9.
    """

    line = "local steps, then a Nesterov step on how far they came"
    vectors = 3
    cite: ClassVar[tuple[str, ...]] = ("douillard2023diloco",)
    records: ClassVar[tuple[type, ...]] = (DiLoCoReplica, NoServer)
    replica: ClassVar[type[Replica]] = DiLoCoReplica

    def __init__(
        self, opt: Factory, *, H: int = 50, outer: str = "sgd", outer_lr: float = 0.7, outer_momentum: float = 0.9
    ) -> None:
        super().__init__(opt, H=H)
        options: dict[str, Any] = {"lr": number("outer_lr", outer_lr)}
        if outer.lower() == "sgd":
            momentum = number("outer_momentum", outer_momentum, 0.0, 1.0, open_end=True)
            options |= {"momentum": momentum, "nesterov": momentum > 0}
        else:
            without_effect("outer_momentum", outer_momentum, 0.9, f"with solver.outer={outer!r}")
        self.outer_optimizer = optimizer_factory(outer, **options)

    def why_not(self, world: World) -> str | None:
        return super().why_not(world) or refusal(self.outer_optimizer, world.layout)

    def init_worker(self, rank: int, x0: Any, world: World) -> DiLoCoReplica:
        w = super().init_worker(rank, x0, world)
        w.x0, w.outer = x0, WorkerStepper(self.outer_optimizer, world.layout)
        return w

    def revive(self, w: DiLoCoReplica, world: World) -> DiLoCoReplica:
        w.outer = revived(w.outer, WorkerStepper(self.outer_optimizer, world.layout))
        return super().revive(w, world)

    def outer(self, w: DiLoCoReplica, mean: Reduced) -> Any:
        w.x0 = w.outer.step_from(w.x0, w.x0 - mean.value)
        return w.x0
