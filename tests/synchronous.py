"""Cases for rules that add up the gradients of a round, whoever adds them: a server, a ring, groups."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

import offbeat
from harness import Mlp, build, cluster, points
from offbeat.core.effects import Gradient
from offbeat.core.layout import Layout
from offbeat.core.seeds import key64
from offbeat.core.task import Point
from offbeat.solvers.plain import Plain

OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.05),
    "momentum": partial(torch.optim.SGD, lr=0.02, momentum=0.9),
    "nesterov": partial(torch.optim.SGD, lr=0.02, momentum=0.9, nesterov=True),
    "adam": partial(torch.optim.Adam, lr=0.01),
    "adamw": partial(torch.optim.AdamW, lr=0.01),
    "adagrad": partial(torch.optim.Adagrad, lr=0.05),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.01),
}


def draws(task, seed, batch, count, train):
    """The first draws of source 0, and their keys, handed to the reference as plain data."""
    feed = build(task, Plain(OPTIMIZERS["sgd"]), cluster(), seed=seed, batch=batch).feed
    picked = [torch.from_numpy(feed.indices(0, k).copy()) for k in range(count)]
    return [(train[0][i], train[1][i]) for i in picked], [key64(seed, "model", 0, k) for k in range(count)]


def sync_case(workers, steps, batch, double=False):
    """A task, and for the reference: its model, the batches and the keys of each round; machines of unequal speed."""
    train = points(120)
    train = (train[0].double(), train[1]) if double else train

    def make():
        return Mlp(None if double else nn.Dropout(0.2)).to(torch.float64 if double else torch.float32)

    task = offbeat.task(make, F.cross_entropy, train)
    batches, keys = draws(task, 0, batch, workers * steps, train)
    rounds = [batches[k * workers : (k + 1) * workers] for k in range(steps)]
    seeds = [keys[k * workers : (k + 1) * workers] for k in range(steps)]
    # Worker 0 is the slowest: gradients arrive in the opposite order.
    compute = ["10ms", *(f"{(20 * workers - i)}ms@{i}" for i in range(workers))]
    torch.manual_seed(0)
    return task, make(), rounds, seeds, cluster(workers, compute=compute)


class Uneven:
    """Gradient i of a round stands for i + 1 samples and equals (i + 1) everywhere."""

    name, size, nbytes = "uneven", None, 16
    layout = Layout.of([("x", (2,))])

    def __init__(self, workers):
        self.counts = {key64(0, "model", i, 0): i + 1 for i in range(workers)}

    def init(self, seed):
        return Point(torch.zeros(2, dtype=torch.float64))

    def gradient(self, point, batch, key):
        n = self.counts.get(key, 1)
        return Gradient(torch.full((2,), float(n), dtype=torch.float64), 0.0, n)
