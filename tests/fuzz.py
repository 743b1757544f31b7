"""Configurations by lot: keys and options that exist, with values that suit them, nearly suit them, or do not."""

import inspect
import random
from collections.abc import Iterator
from typing import Any

from offbeat.lab.config import parse_setting
from offbeat.lab.config.meaning import keys
from offbeat.lab.config.words import KEYS
from offbeat.lab.engines import ENGINES
from offbeat.optim.factories import OPTIMIZERS, known_options
from offbeat.solvers import OF_SERVERS, SOLVERS, hyper_parameters, load_object, solver_class
from offbeat.tasks import TASKS

SMALL = {
    "quadratic": {},
    "sparse-logistic": {"task.samples": 40, "task.features": 20, "task.nonzeros": 4},
}
"""Tasks that are made in no time."""
WORDS = {
    key: word for word, key in KEYS.items() if word not in ("solver", "workers", "local", "data", "delay", "until")
}
"""Keys that `train` has an argument for; `global_batch` has none."""
WORDS.pop("data.global_batch")
NAN, INF = float("nan"), float("inf")
WEIRD: list[Any] = [
    *(NAN, INF, -INF, -1, 0, 1, 2, 3, 0.5, -0.5, 1e308, 5e-324, 10**9, 2**63, -(2**70), 10**400, 1e-9),
    *(True, False, "", " ", "x", "30ms@all", "30ms", "2epochs", "10samples", "5updates", "1e400s", "accuracy=0.5"),
    *("normal(1ms,2ms)", "empirical(1,2)", "lose 0 at 1s", "5ms@0>1", "ring", "sgd", "adam", "asgd", "all", "0"),
    *("a.b:c", ":", "\x7f\x1b[31m", "é" * 200, "[/red]", "none", "1_0", "${HOME}", "../x"),
    *(
        [],
        [1],
        [0.5, 0.5],
        ["x"],
        [[]],
        [[1, 0]],
        ["10ms", "20ms@0"],
        {},
        {"a": 1},
        {"x": {"lr": 2.0}},
        [[[[[[[[[[1]]]]]]]]]],
    ),
]


def configurations(seed: int, count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """(task, settings), the same for the same seed."""
    rng = random.Random(seed)
    common = {row.key: parse_setting(f"{row.key}={row.example}")[1] for row in keys()}
    common = {k: v for k, v in common.items() if k not in ("task.name", "solver.name", "optimizer.name")}
    for _ in range(count):
        task, solver, optimizer = (
            rng.choice(["quadratic"] * 3 + ["sparse-logistic"]),
            rng.choice(list(SOLVERS)),
            rng.choice(list(OPTIMIZERS)),
        )
        values: dict[str, Any] = {**SMALL[task], "solver.name": solver}
        if rng.random() < 0.4:
            values["optimizer.name"] = optimizer
        here = common
        if rng.random() < 0.2:  # another engine, and then its own settings oftener
            values["engine"] = rng.choice(list(ENGINES))
            here = {k: v for k, v in common.items() if k.startswith(("ray.", "local.", "cluster."))}
        own = _options(task, solver, values.get("optimizer.name", "sgd"))
        for _ in range(rng.choice((1, 1, 2, 2, 3, 5))):
            if rng.random() < 0.5:
                key = rng.choice(list(own))
                values[key] = _mutated(rng, own[key])
            else:
                key = rng.choice(list(here))
                values[key] = _mutated(rng, here[key])
        if rng.random() < 0.02:
            values[rng.choice(("task.name", "solver.name", "optimizer.name", "x", "a.b.c", "data"))] = rng.choice(WEIRD)
        yield task, values


def _options(task: str, solver: str, optimizer: str) -> dict[str, Any]:
    """The options of what was chosen, with a value that each might have."""
    kind, optimizer_kind = solver_class(solver), OPTIMIZERS[optimizer]
    found = {f"solver.{k}": v for k, v in hyper_parameters(kind).items()}
    usual_of = {"clip": 1.5, "clip_at": "server", "overlap": True}
    found |= {f"solver.{k}": usual_of.get(k, 3) for k in OF_SERVERS if k not in found and hasattr(kind, k)}
    usual = inspect.signature(optimizer_kind).parameters
    found |= {f"optimizer.{k}": usual[k].default for k in known_options(optimizer_kind)}
    parameters = inspect.signature(load_object(TASKS[task].path, "task")).parameters
    return found | {f"task.{k}": p.default for k, p in parameters.items()}


def _mutated(rng: random.Random, value: Any) -> Any:
    """A value of the same kind, or of another."""
    if isinstance(value, tuple):
        value = [v for v in value if v is not None]
    way = rng.random()
    if way < 0.6 and value is not None:
        return value
    if way < 0.7 and isinstance(value, int | float) and not isinstance(value, bool):
        return rng.choice((value * 2, value + 1, -value, value / 3, float(value), str(value)))
    if way < 0.75:
        return [value] if value is not None else []
    return rng.choice(WEIRD)
