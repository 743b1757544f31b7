"""A run as one frozen, validated record: what `run.json` holds, and what its content address is made of."""

import hashlib
import json
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from offbeat.core.errors import ConfigError
from offbeat.engines.cluster import Cluster
from offbeat.lab.config.sections import (
    BudgetConfig,
    ConfigSection,
    DataConfig,
    EvaluateConfig,
    LocalConfig,
    OptimizerConfig,
    RayConfig,
    RecordConfig,
    ScaleConfig,
    ScheduleConfig,
    SolverConfig,
    TaskConfig,
)
from offbeat.lab.engines import entry


class Config(ConfigSection):
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
    engine: str = "sim"
    local: LocalConfig = LocalConfig()
    ray: RayConfig = RayConfig()
    seed: int = Field(0, ge=0, lt=2**63)
    on_divergence: Literal["stop", "continue"] = "stop"

    @field_validator("engine")
    @classmethod
    def _known(cls, engine: str) -> str:
        entry(engine)  # its own error lists them
        return engine

    @model_validator(mode="after")
    def _cluster(self) -> "Config":
        workers = self.cluster_value().workers  # its own errors name the key
        start, floor = self.local.start or workers, self.local.floor or 1
        if not floor <= start <= workers:
            raise ValueError(f"local.floor <= local.start <= cluster.workers, got {floor}, {start} and {workers}")
        return self

    def cluster_value(self) -> Cluster:
        return Cluster.parse(**self.cluster)

    @property
    def workers(self) -> int:
        """How many there are; the cluster was read when this was made, and is not read again for a number."""
        return int(self.cluster.get("workers", Cluster.workers))

    @property
    def batch(self) -> int:
        """Samples of one worker's mini-batch."""
        workers = self.workers
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
        ratio = self.workers / self.scale.workers
        return self.optimizer.lr * {"none": 1.0, "linear": ratio, "inverse": 1 / ratio}[self.scale.lr]

    def plain(self) -> dict[str, Any]:
        """JSON and TOML values, without what is not set."""
        values: dict[str, Any] = _without_none(self.model_dump(mode="json"))
        for name in RayConfig.YOUNGER:
            if getattr(self.ray, name) == RayConfig.model_fields[name].default:
                values["ray"].pop(name, None)
        if self.ray == RayConfig():
            del values["ray"]
        return values

    @property
    def hash(self) -> str:
        """The content address: same configuration, same folder."""
        text = json.dumps(self.plain(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_none(values: Any) -> Any:
    if isinstance(values, dict):
        return {k: _without_none(v) for k, v in values.items() if v is not None}
    return values
