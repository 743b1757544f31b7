"""Where an exception came from: which worker, which round, which request and what it held."""

from typing import Any

from torch import Tensor

from offbeat.engines.real.server_loop import ServerLoop
from offbeat.engines.real.transport import RunError
from offbeat.engines.real.worker_loop import WorkerLoop


class RuleFailedError(RunError):
    """An exception in a rule, a model or a loss, with where it was raised. Its cause is the exception itself."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__(f"{where}: {type(error).__name__}: {error}")
        self.__cause__ = error


def where_worker(rank: int, worker: WorkerLoop | None, error: BaseException) -> RuleFailedError:
    if worker is None or worker.rounds is None:
        return RuleFailedError(f"worker {rank} failed before its first round", error)
    asked = worker.rounds.pending
    after = "at its beginning" if asked is None else f"at {in_words(asked)}"
    return RuleFailedError(f"worker {rank} failed in round {worker.round_number}, {after}", error)


def where_server(server: ServerLoop | None, error: BaseException) -> RuleFailedError:
    if server is None or server.handling is None:
        return RuleFailedError("the server failed", error)
    worker, message = server.handling
    return RuleFailedError(f"the server failed at a message of worker {worker}, {in_words(message)}", error)


def in_words(value: Any, depth: int = 2) -> str:
    """A request and what it holds, in one line: vectors by their size, records by their fields."""
    if isinstance(value, Tensor):
        return f"tensor of {'x'.join(map(str, value.shape))} {str(value.dtype).removeprefix('torch.')}"
    names = getattr(type(value), "__struct_fields__", None) or getattr(type(value), "__dataclass_fields__", None)
    if names is None:
        return repr(value) if len(repr(value)) <= 60 else f"{type(value).__name__} of {len(repr(value))} characters"
    if depth == 0:
        return f"{type(value).__name__}(...)"
    held = {name: getattr(value, name) for name in names}
    told = ", ".join(f"{name}={in_words(v, depth - 1)}" for name, v in held.items() if v is not None and v != ())
    return f"{type(value).__name__}({told})"
