"""The asynchronous parameter server of Ray's documentation, written afresh: actors, and `ray.wait` for the next one.

The driver passes references on and never touches a vector: a worker's gradient goes to the server, what the server
answers goes to that worker. Used by `local.py` where ray is installed. Ray listens on every network interface, whatever
it is told, so it is started only where there is none but the loopback:

    unshare --net bash -c 'ip link set lo up; python benchmarks/local.py'
"""

import importlib.util
import socket
import time
from typing import Any

import torch
from torch.nn import functional as F

from offbeat.data.arrays import load
from offbeat.tasks.models.lenet import lenet5

_WARM_UP = 20  # gradients a worker


def obstacle() -> str | None:
    """Why it cannot be run here; None if it can."""
    if importlib.util.find_spec("ray") is None:
        return "ray is not installed"
    others = [name for _, name in socket.if_nameindex() if name != "lo"]
    return f"ray would listen on {', '.join(others)}, see ray_server.py" if others else None


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return lenet5()


class Server:
    """Holds the parameters; applies a gradient and answers with the new ones."""

    def __init__(self, lr: float) -> None:
        torch.set_num_threads(1)
        self.net = model()
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

    def __init__(self, rank: int, batch: int) -> None:
        torch.set_num_threads(1)
        self.net, self.batch = model(), batch
        data = load("digits")
        self.x, self.y = data.train_x, data.train_y
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


def samples_per_second(workers: int, seconds: float, batch: int, lr: float) -> float:
    """Of all workers together, after a warm-up."""
    import ray

    ray.init(num_cpus=workers + 1, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    try:
        server = ray.remote(Server).remote(lr)
        made = [ray.remote(Worker).remote(i, batch) for i in range(workers)]
        weights = server.weights.remote()
        under_way = {w.gradient.remote(weights): w for w in made}
        done, begun, end = 0, 0.0, float("inf")
        while time.monotonic() < end:
            (first, *_), _ = ray.wait(list(under_way))
            worker = under_way.pop(first)
            under_way[worker.gradient.remote(server.apply.remote(first))] = worker
            done += 1
            if done == _WARM_UP * workers:
                begun = time.monotonic()
                end = begun + seconds
        return (done - _WARM_UP * workers) * batch / (time.monotonic() - begun)
    finally:
        ray.shutdown()
