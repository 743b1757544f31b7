"""The one table of cases: every solver, with options and what may be expected of it. A new solver adds a line here."""

from offbeat.lab.contract import SGD, Case

MOMENTUM = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
NESTEROV = {**MOMENTUM, "nesterov": True}
ADAM = {"name": "adam", "lr": 0.01}
LAMB = {"name": "lamb", "lr": 0.01}

# `alone` is the optimizer that the method is with one worker, bit for bit; no `alone`, no such claim.
CASES = [
    Case("plain", workers=1, alone=SGD),
    Case("plain", workers=1, optimizer=ADAM, alone=ADAM),
    Case("sync", alone=SGD),
    Case("sync", workers=4, optimizer=MOMENTUM, alone=MOMENTUM),
    Case("asgd", alone=SGD),
    Case("asgd", workers=4, optimizer=ADAM, alone=ADAM),
    Case("asgd", optimizer=LAMB, alone=LAMB),
    Case("asgd", {"clip": 0.5}),
    Case("asgd", {"clip": 0.5, "clip_at": "server"}, optimizer=MOMENTUM),
    Case("asgd", {"introduce": 30.0}, workers=4, alone=SGD),
    Case("constant-delay", {"delay": 0}, workers=1, alone=SGD),
    Case("constant-delay", {"delay": 4}, workers=1),
    Case("constant-delay", {"delay": 3, "filling": "immediate"}, workers=1, optimizer=MOMENTUM),
    Case("dc-asgd", {"lam": 2.0}, alone=SGD),
    Case("dc-asgd", {"lam": 0.0}, workers=4, alone=SGD),
    Case("dc-asgd", {"lam": 2.0, "adaptive": True}, workers=4, alone=SGD),
    Case("async-momentum", alone=MOMENTUM),
    Case("async-momentum", {"nesterov": True}, alone=NESTEROV),
    Case("multi-asgd", alone=MOMENTUM),
    Case("multi-asgd", {"nesterov": True}, workers=4, alone=NESTEROV),
    Case("worker-momentum", alone=MOMENTUM),
    Case("worker-momentum", {"nesterov": True, "clip": 1.0}, workers=4),
    Case("backup", {"backups": 1}),
    Case("backup", {"backups": 0}, workers=4, alone=SGD),
    Case("phased", {"start": "sync", "epochs": 15.0}, alone=SGD),
    Case("phased", {"start": "single", "epochs": 15.0}, alone=SGD),
    Case("ssp", {"s": 0}, alone=SGD),
    Case("ssp", {"s": 2}, workers=4, alone=SGD),
    Case("staleness-aware", workers=4, alone=SGD),
    Case("softsync", {"n": 1}, alone=SGD),
    Case("softsync", {"n": 2}, workers=4, optimizer=ADAM),
    Case("delay-adaptive", workers=4, alone=SGD),
    Case("delay-adaptive", {"rule": "koloskova"}, workers=4, alone=SGD),
    Case("delay-adaptive", {"rule": "koloskova", "smoothness": 3.0}, workers=4, alone=SGD),
    Case("gap-aware", alone=SGD),
    Case("gap-aware", optimizer=MOMENTUM, alone=MOMENTUM),
    Case("dana-zero"),
    Case("dana-slim", alone=NESTEROV),
    Case("ringmaster", {"R": 2}, workers=4, alone=SGD),
    Case("ringmaster", {"R": 2, "stops": True}, workers=4, alone=SGD),
    Case("rennala", alone=SGD),
    Case("rennala", {"S": 2}, workers=4),
    Case("ringleader", alone=SGD),
    Case("ringleader", workers=4, optimizer=ADAM, alone=ADAM),
    Case("schedule-free"),
    Case("schedule-free", {"beta": 0.0}, workers=4),
    Case("compressed", {"share": 1.0}, alone=SGD),
    Case("compressed", {"share": 0.3}, workers=4),
    Case("compressed", {"kind": "sign"}),
]
