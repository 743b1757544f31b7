"""The sections of a configuration, each a frozen, validated record."""

from math import isfinite
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from offbeat.core.budget import LARGEST, Amount, Budget, Target
from offbeat.core.units import parse_duration
from offbeat.data import partitions
from offbeat.engines.cluster import MOST_WORKERS

Factor = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class ConfigSection(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        kind = cls.model_fields[info.field_name].annotation if info.field_name in cls.model_fields else None
        if isinstance(value, bool) and {int, float} & {kind, *get_args(kind)}:
            raise ValueError("must be a number")
        return value


class Open(ConfigSection):
    """A section whose further keys belong to what `name` chooses, which checks them itself."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.__pydantic_extra__ or {})


class TaskConfig(Open):
    name: str


class SolverConfig(Open):
    name: str = "asgd"


class OptimizerConfig(Open):
    name: str = "sgd"
    lr: float = 0.05
    multipliers: dict[str, dict[Literal["lr", "decay"], Factor]] | None = None  # by pattern of segment names
    first: dict[str, Any] | None = None  # another optimizer for the first samples: {name, lr, for, ...}

    @field_validator("lr")
    @classmethod
    def _positive(cls, lr: float) -> float:
        if not (isfinite(lr) and lr > 0):
            raise ValueError("must be a positive, finite number")
        return lr


class DataConfig(ConfigSection):
    batch: int | None = Field(None, ge=1, lt=2**31)  # per worker
    global_batch: int | None = Field(None, ge=1, lt=2**31)  # shared by the workers
    first_batch: int | None = Field(None, ge=1, lt=2**31)  # the batch grows from this ...
    batch_warmup: str | None = None  # ... over so many epochs or samples
    partition: str = "shared"  # shared, interleaved, split, split-labels, dirichlet(0.5), size-skew(1)
    sampling: Literal["shuffled", "replacement"] = "shuffled"
    validation: float | None = Field(None, gt=0, lt=1)  # share of the training set to evaluate on
    folds: int | None = Field(None, ge=2, lt=2**31)  # of cross-validation; `fold` is the one held out
    fold: int | None = Field(None, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _first_fold(cls, values: Any) -> Any:
        """Folds alone hold out the first: so said or not, it is the same run."""
        if isinstance(values, dict) and values.get("folds") is not None and values.get("fold") is None:
            return {**values, "fold": 0}
        return values

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


class BudgetConfig(ConfigSection):
    epochs: float | None = Field(None, gt=0)
    samples: int | None = Field(None, ge=1, le=LARGEST)
    updates: int | None = Field(None, ge=1, le=LARGEST)
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


class EvaluateConfig(ConfigSection):
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


class ScheduleConfig(ConfigSection):
    """The learning rate over the work clock (samples), whatever the number of updates."""

    kind: Literal["constant", "polynomial", "multistep", "exponential", "cosine"] = "constant"
    warmup: str | None = None  # 5epochs, 1000samples
    over: str | None = None  # default: the budget
    power: float = Field(1.0, gt=0, le=1000)
    milestones: tuple[str, ...] = ()
    gamma: float = Field(0.1, gt=0, le=10)
    floor: float = Field(0.0, ge=0, le=1)

    @field_validator("warmup", "over", "milestones")
    @classmethod
    def _amounts(cls, value: Any) -> Any:
        for text in (value,) if isinstance(value, str) else value or ():
            if Amount.parse(text, "a schedule's length").unit not in ("epochs", "samples"):
                raise ValueError("must be in epochs or samples: the work clock knows no updates and no seconds")
        return value


class ScaleConfig(ConfigSection):
    """What changes with the number of workers, against a reference number of them.

    `lr = "linear"` is Goyal's rule for synchronous SGD; `lr = "inverse", batch = "inverse"` is jain2018's for
    asynchronous SGD: halve learning rate and batch when the workers double.
    """

    workers: int = Field(1, ge=1, le=MOST_WORKERS)
    lr: Literal["none", "linear", "inverse"] = "none"
    batch: Literal["none", "inverse"] = "none"


class RecordConfig(ConfigSection):
    gap: bool = True
    saves_per_epoch: float = Field(0, ge=0, le=1_000_000)
    diagnose_every: int | None = Field(None, ge=1)  # compare every so many gradients with the fresh one


class LocalConfig(ConfigSection):
    """Real processes, on one machine or many: what happens when one is lost, and when a silent one counts as lost."""

    on_loss: Literal["restart", "leave out"] = "restart"
    patience: str = "60s"
    restarts: int = Field(20, ge=0, le=1_000_000)
    start: int | None = Field(None, ge=1, le=MOST_WORKERS)
    floor: int | None = Field(None, ge=1, le=MOST_WORKERS)

    @field_validator("patience", mode="before")
    @classmethod
    def _duration(cls, patience: Any) -> str:
        if parse_duration(patience, "local.patience") <= 0:
            raise ValueError("must be above 0 s")
        return patience if isinstance(patience, str) else f"{patience:g}s"


class RayConfig(ConfigSection):
    """The ray engine: which cluster, where its processes are placed, and how their bytes travel."""

    YOUNGER: ClassVar = ("shared_memory", "allreduce", "shards")
    """Settings that older runs do not know: while they are as they come, the address of a run stays what it was."""
    address: str | None = Field(None, min_length=1)
    transport: Literal["zmq", "actor"] = "zmq"
    encryption: Literal["auto", "on", "off"] = "auto"
    shared_memory: Literal["auto", "off"] = "auto"
    allreduce: Literal["server", "gloo"] = "server"
    shards: int = Field(1, ge=1, le=1024)
    cpus: float = Field(1.0, ge=0, le=4096)
    gpus: float = Field(0.0, ge=0, le=64)
    server_cpus: float = Field(0.0, ge=0, le=4096)
    server: str = Field("driver", min_length=1)
    wait: str = "60s"

    @field_validator("wait", mode="before")
    @classmethod
    def _duration(cls, wait: Any) -> str:
        if parse_duration(wait, "ray.wait") <= 0:
            raise ValueError("must be above 0 s")
        return wait if isinstance(wait, str) else f"{wait:g}s"
