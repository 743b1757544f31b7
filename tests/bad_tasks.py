"""Tasks whose gradients do what no gradient should, at a mini-batch that is known beforehand."""

import ctypes
import os
import resource
import subprocess
import time
from pathlib import Path

import torch

from offbeat.tasks.quadratic import Quadratic

AT = 5
"""The mini-batch, of each life of a worker that does it, from 0."""
LINGERING = os.environ.setdefault("OFFBEAT_LINGERING", f"1000.{os.getpid()}")
"""Seconds for which a child is started: by them it is known among all processes, also those of other sessions."""


class Bad(Quadratic):
    """A quadratic; its worker's gradient number AT does something bad, if the worker's seed says that it is the one."""

    def __init__(self, deed, note=None):
        super().__init__(8)
        self.deed, self.note, self.count = deed, note, 0

    def gradient(self, point, batch, key):
        g = super().gradient(point, batch, key)
        if self.count == AT:
            self.deed(self, g)
        self.count += 1
        return g


def segfault(task, g):
    ctypes.string_at(0)  # the line that is to be named


def leave(task, g):
    os._exit(7)


def complain(task, g):
    torch.ones(3) @ torch.ones(4)  # raised inside torch


def allocate(task, g):
    """As in a container: there is so much and no more."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
    kept = []
    while True:
        kept.append(torch.zeros(1 << 20))


def lose_count(task, g):
    g.loss = float("nan")


def flood(task, g):
    line = "x" * (1 << 20)
    for _ in range(1024):
        print(line)


def linger(task, g):
    """Two ways to outlive a parent: a program in a session of its own, and an orphan of an orphan."""
    subprocess.Popen(["sleep", LINGERING], start_new_session=True)
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            os.execvp("sleep", ["sleep", LINGERING])
        os._exit(0)
    os.wait()
    Path(task.note).touch()


def sleep(task, g):
    time.sleep(3600)


def making_children():
    """A factory that leaves a process behind in whoever makes the task."""
    subprocess.Popen(["sleep", LINGERING])
    return Quadratic(8)


def without_processes():
    """A factory after which its process cannot start another one: as with `ulimit -u`, which root is not subject to."""
    forks = [0]
    fork = os.fork

    def failing():
        forks[0] += 1
        if forks[0] == 3:  # the server, worker 0, and no more
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return fork()

    os.fork = failing
    return Quadratic(8)


def nagging():
    """A task for the command line: its worker number 1 stands still for an hour at its mini-batch number AT."""
    return Bad(sleep)
