"""The asynchronous parameter server of Ray's documentation, written afresh: actors, and `ray.wait` for the next one.

The driver passes references on and never touches a vector: a worker's gradient goes to the server, what the server
answers goes to that worker. Used by `local.py` and `cluster.py` where ray is installed. It is started as offbeat starts
it: on the loopback alone, with authentication.
"""

import importlib.util
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from offbeat.data.arrays import load
from offbeat.engines.ray.connection import Connection
from offbeat.tasks.models.lenet import lenet5


def obstacle() -> str | None:
    """Why it cannot be run here; None if it can."""
    return "ray is not installed" if importlib.util.find_spec("ray") is None else None


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return lenet5()


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = load("digits")
    return data.train_x, data.train_y


Data = Callable[[], tuple[torch.Tensor, torch.Tensor]]
Maker = Callable[[], torch.nn.Module]


class Server:
    """Holds the parameters; applies a gradient and answers with the new ones."""

    def __init__(self, make: Maker, lr: float) -> None:
        torch.set_num_threads(1)
        self.net = make()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr)

    def weights(self) -> Any:
        return {name: p.detach() for name, p in self.net.state_dict().items()}

    def apply(self, gradient: Any) -> Any:
        self.optimizer.zero_grad()
        for p, g in zip(self.net.parameters(), gradient, strict=True):
            p.grad = torch.from_numpy(g.copy())  # what comes from the object store is read-only
        self.optimizer.step()
        return self.weights()


class Worker:
    """Takes parameters, computes a gradient on its next batch."""

    def __init__(self, make: Maker, data: Data, rank: int, batch: int) -> None:
        torch.set_num_threads(1)
        self.net, self.batch = make(), batch
        self.x, self.y = data()
        self.draws = torch.Generator().manual_seed(rank)
        self.order, self.at = torch.randperm(len(self.x), generator=self.draws), 0

    def gradient(self, weights: Any) -> Any:
        self.net.load_state_dict(weights)
        if self.at + self.batch > len(self.x):
            self.order, self.at = torch.randperm(len(self.x), generator=self.draws), 0
        chosen, self.at = self.order[self.at : self.at + self.batch], self.at + self.batch
        self.net.zero_grad()
        F.cross_entropy(self.net(self.x.index_select(0, chosen)), self.y.index_select(0, chosen)).backward()
        return [p.grad.numpy() for p in self.net.parameters() if p.grad is not None]


def samples_per_second(
    workers: int, seconds: float, batch: int, lr: float, make: Maker = model, data: Data = digits, warm_up: int = 20
) -> float:
    """Of all workers together, after a warm-up of so many gradients a worker."""
    connection = Connection(None, workers + 1)
    import ray

    try:
        server = ray.remote(Server).remote(make, lr)
        made = [ray.remote(Worker).remote(make, data, i, batch) for i in range(workers)]
        weights = server.weights.remote()
        under_way = {w.gradient.remote(weights): w for w in made}
        done, begun, end = 0, 0.0, float("inf")
        while time.monotonic() < end:
            (first, *_), _ = ray.wait(list(under_way))
            worker = under_way.pop(first)
            under_way[worker.gradient.remote(server.apply.remote(first))] = worker
            done += 1
            if done == warm_up * workers:
                begun = time.monotonic()
                end = begun + seconds
        return (done - warm_up * workers) * batch / (time.monotonic() - begun)
    finally:
        connection.close()
