"""The loss around trajectories: a plane through parameter space, a grid on it, the held-out loss at every point.

The plane is that of the two principal components of all saved points of all runs (lamour2023, Figures 1 and 2), or is
spanned by two random directions through the final parameters, scaled filter by filter to the size of the weights
(Li et al. 2018, "Visualizing the loss landscape of neural nets").
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from offbeat.core.bits import hold_still, usual_torch
from offbeat.core.errors import ConfigError, StoreError
from offbeat.core.layout import Layout
from offbeat.core.task import Point, Task
from offbeat.folders.made import saves
from offbeat.folders.opening import there
from offbeat.folders.plain_values import read_json
from offbeat.folders.run_files import RunFiles
from offbeat.folders.tensor_files import read_point, read_save
from offbeat.folders.writing import make_folder
from offbeat.lab.config import given_as_objects
from offbeat.lab.runs.conditions import cores
from offbeat.lab.runs.folder import Folder
from offbeat.lab.runs.tasks import recorded_task
from offbeat.lab.runs.trust import check_trusted

DIRECTIONS = ("pca", "random")
_MOST_SAVES = 200


@dataclass(frozen=True)
class Trajectory:
    """The saved points of one run, the initial one included."""

    run: RunFiles
    points: Tensor
    samples: list[int]


@dataclass(frozen=True)
class Plane:
    """x(a, b) = centre + a u + b v."""

    centre: Tensor
    u: Tensor
    v: Tensor

    def point(self, a: float, b: float) -> Tensor:
        return (self.centre + a * self.u + b * self.v).to(torch.float32)

    def project(self, points: Tensor) -> Tensor:
        """Coordinates of the nearest points of the plane, one row each."""
        d = points.double() - self.centre
        uu, uv, vv = self.u @ self.u, self.u @ self.v, self.v @ self.v
        du, dv = d @ self.u, d @ self.v
        a, b = du * vv - dv * uv, dv * uu - du * uv  # the normal equations, by Cramer's rule
        return torch.stack([a, b], 1) / (uu * vv - uv * uv)


def compute(
    runs: Sequence[Path],
    out: Path,
    *,
    directions: str = "pca",
    grid: int = 30,
    margin: float = 0.25,
    seed: int = 0,
    pool: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    trust: bool = False,
    names: Sequence[str] = (),
) -> bool:
    """Fills the folder `out`: landscape.json, grid.parquet, paths.parquet. False where that was done before.

    `names` are those of the trajectories, which are called by solver and seed unless given. `trust` lets
    folders that were not made here run the code that they name.
    """
    if directions not in DIRECTIONS:
        raise ConfigError(f"directions must be {' or '.join(DIRECTIONS)}, got {directions!r}")
    if not 3 <= grid <= 500:
        raise ConfigError(f"the grid must have 3 to 500 points a side, got {grid}")
    if not 0 <= margin <= 10:
        raise ConfigError(f"the margin must be from 0 to 10, got {margin:g}")
    found = [trajectory(p) for p in runs]
    key = _key(found, directions, grid, margin, seed)
    if _done(out, key):
        return False
    last = read_point(found[0].run.path)
    task = _task(found, last, trust)
    every = torch.cat([t.points for t in found]).double()
    plane = principal(every) if directions == "pca" else filter_normalised(last.x, task.layout, seed)
    where = plane.project(every)
    centred = every - plane.centre
    explained = _explained(every, plane, where)
    axes = [_axis(where[:, i], grid, margin) for i in (0, 1)]
    corners = [(float(a), float(b)) for b in axes[1] for a in axes[0]]
    on_plane = [plane.point(a, b) for a, b in where.tolist()]
    points = [*(("grid", ab) for ab in corners), *(("x", x) for x in [*on_plane, *every.float()])]

    def score(item: tuple[str, Any]) -> dict[str, float]:
        x = plane.point(*item[1]) if item[0] == "grid" else item[1]
        return task.evaluate(Point(x, last.buffers), lambda f, items: [f(i) for i in items])

    scores = _side_by_side(score, points, pool or cores(), progress)
    cells, paths = scores[: len(corners)], scores[len(corners) :]
    folder = Folder(out)
    make_folder(out)
    columns: dict[str, Any] = {"a": [a for a, _ in corners], "b": [b for _, b in corners]}
    columns |= {name: [c.get(name) for c in cells] for name in ("loss", "accuracy") if name in cells[0]}
    folder.write_table("grid.parquet", pa.table(columns))
    owner = [i for i, t in enumerate(found) for _ in t.samples]
    half = len(paths) // 2
    folder.write_table(
        "paths.parquet",
        pa.table(
            {
                "run": owner,
                "samples": [s for t in found for s in t.samples],
                "a": where[:, 0].tolist(),
                "b": where[:, 1].tolist(),
                "distance": _distance(centred, plane, where),
                "loss_on_plane": [p["loss"] for p in paths[:half]],
                "loss": [p["loss"] for p in paths[half:]],
            }
        ),
    )
    about = {"key": key, "directions": directions, "grid": grid, "margin": margin, "seed": seed, "explained": explained}
    about |= {"runs": [str(t.run.path) for t in found], "solvers": [t.run.solver for t in found]}
    about |= {"seeds": [t.run.seed for t in found], "task": task.name, "parameters": task.layout.size}
    about |= {"names": list(names)}
    folder.write_json("landscape.json", about)
    return True


def trajectory(path: Path) -> Trajectory:
    """From the run's folder."""
    run = RunFiles.open(path)
    files = saves(path)
    if len(files) < 2:
        raise ConfigError(f"{path} has no saved trajectory: run it with --saves-per-epoch 3")
    if not run.summary:
        raise StoreError(f"{path} has not ended")
    step = -(-len(files) // _MOST_SAVES)
    points, samples = zip(*(read_save(path, name) for name in files[::step]), strict=True)
    if len({len(x) for x in points}) > 1:
        raise StoreError(f"{path / 'saves'} holds points of different sizes")
    return Trajectory(run, torch.stack([x.float() for x in points]), list(samples))


def principal(points: Tensor) -> Plane:
    """The plane of the two first principal components. By the Gram matrix: there are few points and many dimensions."""
    centre = points.mean(0)
    centred = points - centre
    values, vectors = torch.linalg.eigh(centred @ centred.T)
    if len(values) < 3 or float(values[-2]) <= 1e-12 * float(values[-1]):
        raise ConfigError("these points lie on a line: save more of them along the way (--saves-per-epoch)")
    first, second = (centred.T @ vectors[:, -k] / values[-k].sqrt() for k in (1, 2))
    return Plane(centre, first, second)


def filter_normalised(x: Tensor, layout: Layout, seed: int) -> Plane:
    """Two random directions; each filter d_ij is scaled to |x_ij|, biases and other vectors are left alone."""
    generator = torch.Generator().manual_seed(seed)
    out = []
    for _ in range(2):
        parts = []
        for weight in layout.views(x.double()):
            d = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            if weight.dim() < 2:
                parts.append(torch.zeros_like(d))
                continue
            rows, of = d.flatten(1), weight.flatten(1)
            parts.append(rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12) * of.norm(dim=1, keepdim=True))
        out.append(Layout.flatten(parts))
    return Plane(x.double(), out[0], out[1])


def _explained(points: Tensor, plane: Plane, where: Tensor) -> list[float]:
    """The share of the trajectories' variance along each axis of the plane; for skewed axes, of both together."""
    total = float((points - points.mean(0)).square().sum())
    if total == 0:
        return [0.0]
    basis = torch.stack([plane.u, plane.v])
    gram = basis @ basis.T
    if torch.allclose(gram, torch.eye(2, dtype=gram.dtype), atol=1e-6):
        return [float((where[:, i] - where[:, i].mean()).square().sum()) / total for i in (0, 1)]
    seen = (where - where.mean(0)) @ basis
    return [float(seen.square().sum()) / total]


def _distance(centred: Tensor, plane: Plane, where: Tensor) -> list[float]:
    flat = where @ torch.stack([plane.u, plane.v])
    found: list[float] = (centred - flat).norm(dim=1).tolist()
    return found


def _axis(values: Tensor, grid: int, margin: float) -> Tensor:
    low, high = float(values.min()), float(values.max())
    room = max(margin * (high - low), 1e-6)
    return torch.linspace(low - room, high + room, grid, dtype=torch.float64)


def _side_by_side(
    score: Callable[[Any], dict[str, float]], items: Sequence[Any], threads: int, progress: Callable[[int, int], None]
) -> list[dict[str, float]]:
    """Points in parallel, each on one thread: the same numbers whatever the pool."""
    out = []
    with usual_torch(), ThreadPoolExecutor(threads, initializer=hold_still) as executor:
        for n, found in enumerate(executor.map(score, items), 1):
            out.append(found)
            progress(n, len(items))
    return out


def _task(found: Sequence[Trajectory], last: Point, trust: bool) -> Task:
    first = found[0].run
    if "task" in given_as_objects(first.config):
        raise ConfigError(f"{first.path} was made of Python objects: its model cannot be built again from the folder")
    tasks = {json.dumps(t.run.config.get("task"), sort_keys=True) for t in found}
    if len(tasks) > 1:
        raise ConfigError(f"these runs are of different tasks: {', '.join(sorted(tasks))}")
    check_trusted(first, trust)
    task = recorded_task(first.config)
    for t in found:
        if t.points.shape[1] != task.layout.size or last.x.numel() != task.layout.size:
            raise StoreError(f"{t.run.path} has not as many parameters as its task {task.name!r}: {task.layout.size:,}")
    if not task.evaluate(last, lambda f, items: [f(i) for i in items]):
        raise ConfigError(f"task {task.name!r} has no held-out loss")
    return task


def _key(found: Sequence[Trajectory], *settings: Any) -> str:
    digests = [hashlib.sha256(t.points.numpy().tobytes()).hexdigest() for t in found]
    return hashlib.sha256(json.dumps([digests, settings]).encode()).hexdigest()[:12]


def _done(out: Path, key: str) -> bool:
    if not there(out, "landscape.json"):
        return False
    try:
        return read_json(out, "landscape.json", dict[str, Any]).get("key") == key
    except (StoreError, FileNotFoundError):
        return False
