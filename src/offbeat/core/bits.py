"""What of torch's global state changes the bits of a result, held at fixed values while a run computes."""

import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import torch


class TorchState(NamedTuple):
    """The settings of a thread, or of the process where torch keeps them so."""

    threads: int
    """Intra-op threads: sums are split among them."""
    matmul: str
    """Precision of float32 products; below "highest" they may be rounded to bfloat16 on the way."""
    dtype: torch.dtype
    """Of tensors that are made without one."""
    flush: bool
    """Whether the smallest numbers are rounded to zero."""
    mkldnn: bool
    """Whether convolutions and the like are those of oneDNN."""
    grad: bool

    @classmethod
    def now(cls) -> "TorchState":
        return cls(
            torch.get_num_threads(),
            torch.get_float32_matmul_precision(),
            torch.get_default_dtype(),
            _SMALLEST * _ONE == 0.0,
            bool(torch.backends.mkldnn.enabled),
            torch.is_grad_enabled(),
        )

    def set(self) -> None:
        torch.set_num_threads(self.threads)
        torch.set_float32_matmul_precision(self.matmul)
        torch.set_default_dtype(self.dtype)
        torch.set_flush_denormal(self.flush)
        torch.backends.mkldnn.set_flags(self.mkldnn)  # type: ignore[no-untyped-call]
        torch.set_grad_enabled(self.grad)


_SMALLEST, _ONE = 5e-324, 1.0  # by name, or the product would be made once for ever
USUAL = TorchState(1, "highest", torch.float32, False, True, True)


def hold_still() -> bool:
    """Sets torch as it has to be; whether somebody had changed it."""
    changed = TorchState.now() != USUAL
    if changed:
        USUAL.set()
    return changed


@contextmanager
def usual_torch() -> Iterator[None]:
    """One thread, full precision, float32 and the CPU, whatever the caller has set; he has it back at the end."""
    before = TorchState.now()
    with ExitStack() as inside:
        inside.callback(before.set)
        inside.enter_context(torch.inference_mode(False))
        inside.enter_context(torch.autocast("cpu", enabled=False))
        if torch.get_default_device().type != "cpu":  # only then: it makes every call of torch slower
            inside.enter_context(torch.device("cpu"))
        hold_still()
        yield


def cpu_type() -> str:
    """What nobody can hold fixed: the processor, and the instructions that torch uses of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, platform.machine())}, {torch.backends.cpu.get_cpu_capability()}"
