"""A run as one frozen, validated record. The same dotted keys in TOML files, in `--set` and in Python."""

import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from offbeat.core.budget import Amount, Budget, Target
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.units import parse_duration
from offbeat.engines.cluster import Cluster
from offbeat.solvers import SOLVERS, load_object
from offbeat.tasks import TASKS, partitions, settings

Positive = Field(ge=1)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[info.field_name].annotation if info.field_name in cls.model_fields else None
        if isinstance(value, bool) and {int, float} & {kind, *get_args(kind)}:
            raise ValueError("must be a number")
        return value


class _Open(_Section):
    """A section whose further keys belong to what `name` chooses, which checks them itself."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class TaskConfig(_Open):
    name: str


class SolverConfig(_Open):
    name: str = "asgd"


class OptimizerConfig(_Open):
    name: str = "sgd"
    lr: float = 0.05
    multipliers: dict[str, dict[Literal["lr", "decay"], float]] | None = None  # by pattern of segment names
    first: dict[str, Any] | None = None  # another optimizer for the first samples: {name, lr, for, ...}

    @field_validator("lr")
    @classmethod
    def _positive(cls, lr: float) -> float:
        if not (isfinite(lr) and lr > 0):
            raise ValueError("must be a positive, finite number")
        return lr


class DataConfig(_Section):
    batch: int | None = Field(None, ge=1, lt=2**31)  # per worker
    global_batch: int | None = Field(None, ge=1, lt=2**31)  # shared by the workers
    first_batch: int | None = Field(None, ge=1, lt=2**31)  # the batch grows from this ...
    batch_warmup: str | None = None  # ... over so many epochs or samples
    partition: str = "shared"  # shared, interleaved, split, split-labels, dirichlet(0.5), size-skew(1)
    sampling: Literal["shuffled", "replacement"] = "shuffled"
    validation: float | None = Field(None, gt=0, lt=1)  # share of the training set to evaluate on
    folds: int | None = Field(None, ge=2)  # of cross-validation; `fold` is the one held out
    fold: int | None = Field(None, ge=0)

    @field_validator("partition")
    @classmethod
    def _known(cls, partition: str) -> str:
        partitions.parse(partition)  # its own errors say what is allowed
        return partition

    @model_validator(mode="after")
    def _one(self) -> "DataConfig":
        if self.batch is not None and self.global_batch is not None:
            raise ValueError("give data.batch (per worker) or data.global_batch (shared by the workers), not both")
        if (self.first_batch is None) != (self.batch_warmup is None):
            raise ValueError("give data.first_batch and data.batch_warmup together, such as 8 and '2epochs'")
        if self.folds is not None and self.validation is not None:
            raise ValueError("give data.validation (a share) or data.folds (cross-validation), not both")
        if self.fold is not None and not (self.folds is not None and self.fold < self.folds):
            raise ValueError(f"data.fold must be below data.folds, got {self.fold} of {self.folds}")
        return self


class BudgetConfig(_Section):
    epochs: float | None = Field(None, gt=0)
    samples: int | None = Field(None, ge=1)
    updates: int | None = Field(None, ge=1)
    seconds: float | None = Field(None, gt=0)
    until: str | None = None
    per: Literal["global", "worker"] = "global"

    @property
    def given(self) -> list[str]:
        return [u for u in ("epochs", "samples", "updates", "seconds") if getattr(self, u) is not None]

    @model_validator(mode="after")
    def _one(self) -> "BudgetConfig":
        if len(self.given) > 1:
            raise ValueError(f"give one of epochs, samples, updates, seconds; got {' and '.join(self.given)}")
        if self.until is not None:
            Target.parse(self.until)
        return self

    def budget(self) -> Budget:
        amount = Amount(getattr(self, self.given[0]), self.given[0]) if self.given else None  # type: ignore[arg-type]
        return Budget(amount, None if self.until is None else Target.parse(self.until), self.per)


class EvaluateConfig(_Section):
    every: str = "1epochs"
    patience: int | None = Field(None, ge=1)  # stop after so many evaluations without improvement
    keep_best: bool = True

    @field_validator("every")
    @classmethod
    def _amount(cls, every: str) -> str:
        amount = Amount.parse(every, "evaluate.every")
        if amount.unit == "seconds":
            raise ValueError("must be in epochs, samples or updates")
        return str(amount)


class ScheduleConfig(_Section):
    """The learning rate over the work clock (samples), whatever the number of updates."""

    kind: Literal["constant", "polynomial", "multistep", "exponential", "cosine"] = "constant"
    warmup: str | None = None  # 5epochs, 1000samples
    over: str | None = None  # default: the budget
    power: float = Field(1.0, gt=0)
    milestones: tuple[str, ...] = ()
    gamma: float = Field(0.1, gt=0)
    floor: float = Field(0.0, ge=0, le=1)

    @field_validator("warmup", "over", "milestones")
    @classmethod
    def _amounts(cls, value: Any) -> Any:
        for text in (value,) if isinstance(value, str) else value or ():
            if Amount.parse(text, "a schedule's length").unit not in ("epochs", "samples"):
                raise ValueError("must be in epochs or samples: the work clock knows no updates and no seconds")
        return value


class ScaleConfig(_Section):
    """What changes with the number of workers, against a reference number of them.

    `lr = "linear"` is Goyal's rule for synchronous SGD; `lr = "inverse", batch = "inverse"` is jain2018's for
    asynchronous SGD: halve learning rate and batch when the workers double.
    """

    workers: int = Field(1, ge=1)
    lr: Literal["none", "linear", "inverse"] = "none"
    batch: Literal["none", "inverse"] = "none"


class RecordConfig(_Section):
    gap: bool = True
    saves_per_epoch: float = Field(0, ge=0)
    diagnose_every: int | None = Field(None, ge=1)  # compare every so many gradients with the fresh one


class LocalConfig(_Section):
    """The local engine: what happens when a process is lost, and when a silent one is taken for lost."""

    on_loss: Literal["restart", "leave out"] = "restart"
    patience: str = "60s"
    restarts: int = Field(20, ge=0)

    @field_validator("patience", mode="before")
    @classmethod
    def _duration(cls, patience: Any) -> str:
        if parse_duration(patience, "local.patience") <= 0:
            raise ValueError("must be above 0 s")
        return patience if isinstance(patience, str) else f"{patience:g}s"


class Config(_Section):
    """One run, complete. `run.json` holds it; `offbeat show RUN --toml` prints it; `offbeat run` takes it back."""

    task: TaskConfig
    solver: SolverConfig = SolverConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    cluster: dict[str, Any] = Field(default_factory=dict)
    data: DataConfig = DataConfig()
    budget: BudgetConfig = BudgetConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    scale: ScaleConfig = ScaleConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    record: RecordConfig = RecordConfig()
    engine: Literal["sim", "local", "threads"] = "sim"
    local: LocalConfig = LocalConfig()
    seed: int = Field(0, ge=0, lt=2**63)
    on_divergence: Literal["stop", "continue"] = "stop"

    @model_validator(mode="after")
    def _cluster(self) -> "Config":
        self.cluster_value()  # its own errors name the key
        return self

    def cluster_value(self) -> Cluster:
        return Cluster.parse(**self.cluster)

    @property
    def batch(self) -> int:
        """Samples of one worker's mini-batch."""
        workers = self.cluster_value().workers
        if self.data.global_batch is None:
            batch = self.data.batch or 32
            if self.scale.batch == "none":
                return batch
            return max(1, round(batch * self.scale.workers / workers))
        if self.data.global_batch % workers:
            raise ConfigError(
                f"data.global_batch {self.data.global_batch} cannot be shared equally by {workers} workers"
            )
        return self.data.global_batch // workers

    @property
    def lr(self) -> float:
        """The learning rate, as scaled for the number of workers."""
        ratio = self.cluster_value().workers / self.scale.workers
        return self.optimizer.lr * {"none": 1.0, "linear": ratio, "inverse": 1 / ratio}[self.scale.lr]

    def plain(self) -> dict[str, Any]:
        """JSON and TOML values, without what is not set."""
        values: dict[str, Any] = _without_none(self.model_dump(mode="json"))
        return values

    @property
    def hash(self) -> str:
        """The content address: same configuration, same folder."""
        text = json.dumps(self.plain(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def make(values: Mapping[str, Any]) -> Config:
    """The complete configuration: the given values over the task's defaults; errors in one line each."""
    merged = _nested(values)
    _check_keys(merged)
    name = merged.get("task", {}).get("name")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"a run needs a task; known: {', '.join(sorted(TASKS))}, or package.module:factory")
    if name not in TASKS and ":" not in name:
        raise unknown("task", name, TASKS)
    solver = merged.get("solver", {}).get("name", "asgd")
    if not isinstance(solver, str) or (solver not in SOLVERS and ":" not in solver):
        raise unknown("solver", str(solver), SOLVERS)
    suited = _defaults(name, merged["task"])
    for key, value in suited.items():
        section, _, field = key.partition(".")
        given = merged.setdefault(section, {})
        if section == "optimizer" and field not in ("name", "lr", "multipliers"):
            # Momentum and the like are meant for the optimizer that the task would have.
            usual = suited.get("optimizer.name", "sgd")
            if given.get("name", usual) != usual:
                continue
        if section == "budget" and any(k in given for k in ("epochs", "samples", "updates", "seconds")):
            continue
        if section == "data" and "global_batch" in given:
            continue
        if section == "schedule" and any(u in merged.get("budget", {}) for u in ("updates", "seconds")):
            continue  # it would have no length on the work clock
        given.setdefault(field, value)
    merged.setdefault("cluster", {}).setdefault("workers", 1 if solver in ("plain", "constant-delay") else 4)
    merged["cluster"] = Cluster.parse(**merged["cluster"]).to_dict()
    try:
        config = Config.model_validate(merged)
    except ValidationError as e:
        raise ConfigError(_first(e)) from None
    config.batch  # noqa: B018  # raises if the global batch cannot be shared
    return config


def make_data(values: Mapping[str, Any]) -> DataConfig:
    """The data section alone, for those who come from Python."""
    try:
        return DataConfig.model_validate(dict(values))
    except ValidationError as e:
        raise ConfigError(_first(e)) from None


def make_local(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the local engine alone, likewise."""
    try:
        return LocalConfig.model_validate(dict(values)).model_dump()
    except ValidationError as e:
        raise ConfigError(f"local.{_first(e)}") from None


def from_file(path: Path, overrides: Mapping[str, Any] | None = None) -> Config:
    """A configuration from a TOML file, with dotted overrides."""
    values = _nested(read_toml(path))
    for key, value in (overrides or {}).items():
        put(values, key, value)
    return make(values)


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path} is not valid TOML: {e}") from None


def put(values: dict[str, Any], key: str, value: Any) -> None:
    """Sets a dotted key, `optimizer.lr`."""
    at = values
    *path, last = key.split(".")
    for part in path:
        at = at.setdefault(part, {})
        if not isinstance(at, dict):
            raise ConfigError(f"key {key!r} goes through {part!r}, which is a value and not a section")
    # A new length of the run replaces the old one, whatever its unit.
    if path == ["budget"] and last in ("epochs", "samples", "updates", "seconds"):
        for unit in ("epochs", "samples", "updates", "seconds"):
            at.pop(unit, None)
    at[last] = value


def parse_setting(text: str) -> tuple[str, Any]:
    """`optimizer.lr=0.1` -> ("optimizer.lr", 0.1). Values are TOML; what is not is taken as a string."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes key=value, such as optimizer.lr=0.1, got {text!r}")
    try:
        return key.strip(), tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def to_toml(values: Mapping[str, Any]) -> str:
    """TOML of a configuration: scalars first, then one table a section."""
    lines = [f"{k} = {_toml(v)}" for k, v in values.items() if not isinstance(v, dict)]
    for name, section in values.items():
        if isinstance(section, dict) and section:
            lines += ["", f"[{name}]", *(f"{k} = {_toml(v)}" for k, v in section.items())]
    return "\n".join(lines) + "\n"


def known_keys() -> list[str]:
    """All dotted keys that do not depend on a choice of task, solver or optimizer."""
    return sorted(_keys(Config))


def _keys(kind: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{prefix}{name}.")
        elif name == "cluster":
            yield from (f"cluster.{k}" for k in Cluster.__dataclass_fields__)
        else:
            yield prefix + name


def _check_keys(values: Mapping[str, Any]) -> None:
    """Unknown keys first, so that a typing error is named before what follows from it."""
    known = known_keys()
    sections = {k.split(".")[0] for k in known}
    for name, section in values.items():
        if name not in sections:
            raise unknown("key", name, sections)
        if not isinstance(section, dict):
            if any(k.startswith(f"{name}.") for k in known):
                raise ConfigError(f"{name} must be a section with keys, got {section!r}")
            continue
        if name in ("task", "solver", "optimizer"):
            continue
        for field in section:
            if f"{name}.{field}" not in known:
                raise unknown("key", f"{name}.{field}", known)


def _defaults(task: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    if task in TASKS:
        return settings(task, options)
    return getattr(load_object(task, "task"), "defaults", {"budget.epochs": 5})


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy with dotted keys unfolded; a bare name for task, solver or optimizer is its `name`."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        if key in ("task", "solver", "optimizer") and isinstance(value, str):
            put(out, f"{key}.name", value)
        elif isinstance(value, Mapping):
            for field, inner in value.items():
                put(out, f"{key}.{field}", inner)
        else:
            put(out, key, value)
    return out


def _first(error: ValidationError) -> str:
    """The first of pydantic's complaints, as one line: what, allowed, got."""
    e = error.errors()[0]
    key = ".".join(str(part) for part in e["loc"])
    message = e["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if e["type"] == "extra_forbidden":
        return str(unknown("key", key, known_keys()))
    if isinstance(e.get("input"), dict | BaseModel):
        return f"{key}: {message}" if key else message
    must = "" if message.startswith("must") else "must be "
    return f"{key} {must}{message}, got {e['input']!r}"


def _without_none(values: Any) -> Any:
    if isinstance(values, dict):
        return {k: _without_none(v) for k, v in values.items() if v is not None}
    return values


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def combinations(grid: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    """The cartesian product of a grid of dotted keys, first key slowest."""
    cells: list[dict[str, Any]] = [{}]
    for key, values in grid.items():
        cells = [{**cell, key: value} for cell in cells for value in values]
    return cells
