"""Sparse logistic regression on generated data of known sparsity: the convex problem of the Hogwild! analysis."""

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from offbeat.core.effects import Gradient
from offbeat.core.errors import ConfigError, unknown
from offbeat.core.feed import Indices
from offbeat.core.layout import Layout
from offbeat.core.task import Mapper, Point
from offbeat.tasks.scores import class_scores
from offbeat.tasks.sparsity import Sparsity, hypergraph_of

_SUPPORTS = ("random", "groups")
_LARGEST = 10**8  # 800 MB an array, of which making the data takes a few


class SparseLogistic:
    """f(x) = 1/n sum_i [log(1 + exp(-y_i z_i.x)) + n l2/2 sum_{u in e_i} x_u^2 / d_u], where d_u samples touch u.

    The second sum is l2/2 |x|^2, written so that each term touches its own components alone (Niu et al. 2011, (3)).
    Each z_i has `nonzeros` of `features` components that are not zero: drawn at random, or one of the
    features / nonzeros disjoint groups in turn, for which Omega = nonzeros and Delta = rho = nonzeros / features.
    y_i in {-1, 1} is drawn from the logistic model of a planted x. The data are those of `data_seed`, whatever the run.
    """

    name = "sparse-logistic"

    def __init__(
        self,
        samples: int = 4000,
        features: int = 1000,
        nonzeros: int = 10,
        support: Literal["random", "groups"] = "random",
        l2: float = 1e-4,
        data_seed: int = 0,
    ) -> None:
        if support not in _SUPPORTS:
            raise unknown("support", str(support), _SUPPORTS)
        if not data_seed < 2**32:
            raise ConfigError(f"task.data_seed must be below 2^32, got {data_seed}")
        if max(samples, features, samples * (features if support == "random" else nonzeros)) > _LARGEST:
            raise ConfigError(
                f"sparse-logistic makes data of at most {_LARGEST:,} numbers, got {samples:,} samples of "
                f"{features:,} features"
            )
        if samples < 2 or features < 1 or not 1 <= nonzeros <= features or l2 < 0 or data_seed < 0:
            raise ConfigError(
                "sparse-logistic needs samples >= 2, 1 <= nonzeros <= features, l2 >= 0 and data_seed >= 0, "
                f"got {samples}, {nonzeros}, {features}, {l2}, {data_seed}"
            )
        if support == "groups" and (features % nonzeros or samples % (features // nonzeros)):
            raise ConfigError(
                f"groups of {nonzeros} must divide {features} features, and the {features // nonzeros} groups must "
                f"divide {samples} samples"
            )
        self.support, self.l2, self.features = support, l2, features
        rng = np.random.RandomState(data_seed)  # numpy promises that its stream never changes
        planted = rng.standard_normal(features) * 3
        num_test = max(1, samples // 4)
        columns = _columns(rng, samples + num_test, features, nonzeros, support)
        values = rng.standard_normal(columns.shape)
        margin = (values * planted[columns]).sum(1) / nonzeros**0.5
        y = np.where(rng.random_sample(len(margin)) < 1 / (1 + np.exp(-margin)), 1.0, -1.0)
        values /= nonzeros**0.5
        self._train = _Rows(columns[:samples], values[:samples], y[:samples])
        self._test = _Rows(columns[samples:], values[samples:], y[samples:])
        self.sparsity: Sparsity = hypergraph_of(columns[:samples], features)
        degree = np.bincount(columns[:samples].reshape(-1), minlength=features)
        self.decay = torch.from_numpy(samples * l2 / np.maximum(degree, 1))
        self.size: int | None = samples
        self.layout = Layout.of([("x", (features,))])
        self.nbytes = 8 * features
        self.fingerprint = f"{samples}/{features}/{nonzeros}/{support}/{l2}/{data_seed}"
        self.labels: Indices = (y[:samples] > 0).astype(np.int64)

    def dense(self) -> tuple[Tensor, Tensor]:
        """The training set as a matrix with its zeros, and the labels -1 and 1."""
        columns, values, y = self._train.all()
        return torch.zeros(len(y), self.features, dtype=torch.float64).scatter_(1, columns, values), y

    def init(self, seed: int) -> Point:
        return Point(torch.zeros(self.features, dtype=torch.float64))

    def gradient(self, point: Point, batch: Indices | None, key: int) -> Gradient:
        assert batch is not None
        columns, values, y = self._train.batch(batch)
        margin = y * (values * point.x[columns]).sum(1)
        x_e, decay_e = point.x[columns], self.decay[columns]
        loss = F.softplus(-margin).mean() + (decay_e * x_e * x_e).sum(1).mean() / 2
        slope = -y * torch.sigmoid(-margin) / len(batch)
        each = slope[:, None] * values + decay_e * x_e / len(batch)
        g = torch.zeros_like(point.x).index_add_(0, columns.reshape(-1), each.reshape(-1))
        return Gradient(g, loss.item(), len(batch), int((margin > 0).sum()), float(g.norm()))

    def evaluate(self, point: Point, mapper: Mapper) -> dict[str, float]:
        columns, values, y = self._test.all()
        margin = y * (values * point.x[columns]).sum(1)
        loss = F.softplus(-margin).mean() + self.l2 / 2 * (point.x * point.x).sum()
        return {"loss": loss.item(), "accuracy": float((margin > 0).double().mean())}

    def assess(self, point: Point, mapper: Mapper) -> dict[str, Any]:
        """Scores of the two classes on the test set."""
        columns, values, y = self._test.all()
        predicted = ((values * point.x[columns]).sum(1) > 0).to(torch.int64).numpy()
        truth = (y > 0).to(torch.int64).numpy()
        return {
            "test": {"loss": self.evaluate(point, mapper)["loss"], **class_scores(truth, predicted, 2, ("-1", "1"))}
        }

    def describe(self) -> dict[str, Any]:
        return {
            "task": self.name,
            "parameters": self.features,
            "train_samples": self.size,
            "test_samples": len(self._test.y),
            "chance": self.chance,
            "support": self.support,
            **self.sparsity._asdict(),
        }

    @property
    def chance(self) -> float:
        """The accuracy of always naming the commoner class."""
        share = float((self._test.y > 0).double().mean())
        return max(share, 1 - share)


class _Rows:
    """Sparse rows of equal length, with their labels."""

    def __init__(self, columns: Indices, values: Any, y: Any) -> None:
        self._columns, self._values = torch.from_numpy(columns.copy()), torch.from_numpy(values.copy())
        self.y = torch.from_numpy(y.copy())

    def batch(self, indices: Indices) -> tuple[Tensor, Tensor, Tensor]:
        at = torch.from_numpy(indices)
        return self._columns[at], self._values[at], self.y[at]

    def all(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._columns, self._values, self.y


def _columns(rng: np.random.RandomState, count: int, features: int, nonzeros: int, support: str) -> Indices:
    """The features that each sample touches, in order."""
    if support == "groups":
        group = np.arange(count) % (features // nonzeros)
        return group[:, None] * nonzeros + np.arange(nonzeros)
    # The first `nonzeros` of a random order of the features: distinct, and uniform among all sets.
    found: Indices = np.argsort(rng.random_sample((count, features)), axis=1)[:, :nonzeros]
    return np.sort(found, axis=1)
