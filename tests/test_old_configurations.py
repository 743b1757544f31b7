"""What was configured before clusters grew keeps its address and its bits: the values below were computed then."""

import json
from hashlib import sha256

import pytest

from harness import Stop, cluster
from offbeat.core.feed import Feed
from offbeat.engines.sim import Sim
from offbeat.lab.config import make
from offbeat.lab.studies.timing import rule_of
from offbeat.tasks.idle import Idle

CLUSTERS = {
    "usual": {"workers": 4},
    "normal": {"workers": 6, "compute": "normal(1s,0.3s)"},
    "uneven": {
        "workers": 12,
        "compute": ["normal(20ms,2ms)", "lognormal(60ms,20ms)@8-11"],
        "delay": "exponential(30ms)@3",
    },
    "linked": {"workers": 5, "compute": "gamma(10ms,4ms)", "latency": "1ms", "bandwidth": "1Gbps", "service": "0.2ms"},
    "busy": {"workers": 7, "compute": "exponential(1s)", "service": "exponential(0.2s)", "delay": ["0.5s", "1s@2"]},
    "events": {
        "workers": 4,
        "compute": "pareto(10ms,2.5)",
        "events": ["lose 1 at 55ms", "join 3 at 33ms", "join 1 at 1s"],
    },
    "fed": {"workers": 3, "compute": "empirical(18ms,20ms,95ms)", "feeder": "exponential(9ms)", "memory": "1ms"},
    "grouped": {"workers": 9, "allreduce": "hierarchical(4)", "latency": "3ms", "peers": ["2ms", "5ms@0-3>4-7"]},
    "scripted": {"workers": 2, "schedule": [["10ms", 0], ["12ms", 0], ["30ms", 1], ["41ms", 0]]},
}
CONFIGURATIONS = {
    **{f"digits on {name}": {"task": "digits", "cluster": values} for name, values in CLUSTERS.items()},
    "quadratic": {"task": "quadratic", "solver": "sync", "cluster.workers": 3, "optimizer.lr": 0.1},
    "delayed": {"task": "digits", "solver": "dc-asgd", "cluster.delay": "30ms@0", "data.batch": 64, "seed": 7},
    "averaged": {"task": "digits", "solver": "local-sgd", "cluster.workers": 8, "budget.until": "accuracy=0.9"},
    "local": {"task": "digits", "engine": "local", "cluster": {"workers": 2, "delay": ["10ms@1"]}},
}
ADDRESSES = {
    "digits on usual": "0b729cb30b2d",
    "digits on normal": "5c5a978e2039",
    "digits on uneven": "35e6787a42c7",
    "digits on linked": "351f95b8cfa0",
    "digits on busy": "565455aa1101",
    "digits on events": "09175ba11b72",
    "digits on fed": "158011340f3e",
    "digits on grouped": "e3106cd50242",
    "digits on scripted": "f329fa4ad04d",
    "quadratic": "0d7a12052e15",
    "delayed": "1f01e708a6a2",
    "averaged": "e9b1e870dd41",
    "local": "c17f35f5ef85",
}
RULES = ("asgd", "sync", "allreduce", "easgd", "hogwild", "ad-psgd", "hierarchical", "local-sgd", "backup")
TRACES = {
    "asgd on usual": "1defdd20fae1",
    "sync on usual": "ee7fcf99f03d",
    "allreduce on usual": "53fe1ea73ff1",
    "easgd on usual": "1126a436afc0",
    "hogwild on usual": "e44c17a4bdd6",
    "ad-psgd on usual": "e297231bfb3e",
    "hierarchical on usual": "53fe1ea73ff1",
    "local-sgd on usual": "f66b3e9ecfa8",
    "backup on usual": "2719b99126ea",
    "asgd on normal": "9bdf243f1f60",
    "sync on normal": "364cf61188b7",
    "allreduce on normal": "4a8abbd96706",
    "easgd on normal": "9fcc56fc21a7",
    "hogwild on normal": "af3fd4e586a8",
    "ad-psgd on normal": "cc3b4190a3d3",
    "hierarchical on normal": "4a8abbd96706",
    "local-sgd on normal": "a2aa5883b262",
    "backup on normal": "bcbc929a169d",
    "asgd on uneven": "70e0a2fb7775",
    "sync on uneven": "9d058a906d4e",
    "allreduce on uneven": "6c60f1913caa",
    "easgd on uneven": "edf1cef621cf",
    "hogwild on uneven": "4c6cec7cc95e",
    "ad-psgd on uneven": "d432f5c79547",
    "hierarchical on uneven": "6c60f1913caa",
    "local-sgd on uneven": "e8df0be87c61",
    "backup on uneven": "e71683fe1855",
    "asgd on linked": "c0874976a38f",
    "sync on linked": "61b586901f9f",
    "allreduce on linked": "a579469a259a",
    "easgd on linked": "1cb6f8c39f06",
    "hogwild on linked": "ea83bc73f476",
    "ad-psgd on linked": "0607b45b90ac",
    "hierarchical on linked": "63e7b0cbbdde",
    "local-sgd on linked": "bc542f6dbce8",
    "backup on linked": "044b5e532521",
    "asgd on busy": "5b82a3d969ed",
    "sync on busy": "053cb431a196",
    "allreduce on busy": "976d9715ffb1",
    "easgd on busy": "e604e7072a9b",
    "hogwild on busy": "600d154d1745",
    "ad-psgd on busy": "96e1e7582c09",
    "hierarchical on busy": "976d9715ffb1",
    "local-sgd on busy": "3da69a4f70f8",
    "backup on busy": "0ee1c0b05169",
    "asgd on events": "16fc4586b49a",
    "sync on events": "ef974f0ecbd3",
    "asgd on fed": "98358ae9033e",
    "sync on fed": "2bf8eaf58d43",
    "allreduce on fed": "b0a74bcef445",
    "easgd on fed": "3070eca778d7",
    "hogwild on fed": "87f5b342c839",
    "ad-psgd on fed": "e07c7539ca53",
    "hierarchical on fed": "b0a74bcef445",
    "local-sgd on fed": "60af0b483dc7",
    "backup on fed": "a142f4205430",
    "asgd on grouped": "e4bedd5700d6",
    "sync on grouped": "f225c3ff3968",
    "allreduce on grouped": "28673a3a85d8",
    "easgd on grouped": "edf511d48873",
    "hogwild on grouped": "10a8a7fd3888",
    "ad-psgd on grouped": "e402f797cbeb",
    "hierarchical on grouped": "28673a3a85d8",
    "local-sgd on grouped": "1a4a591a6251",
    "backup on grouped": "07a14cefd487",
    "asgd on scripted": "183bf239b4a8",
}


def address(values):
    return make(values).hash


def trace_of(machines, rule):
    """Every row of a simulated clock, and its counters."""
    sim = Sim(
        Idle(10_000, batch=3),
        rule_of(rule, {}),
        machines,
        Feed(None, batch=3, workers=machines.workers, seed=5),
        seed=5,
        resumable=False,
    )
    sim.run(Stop(updates=40).watch(sim))
    sim.finish()
    told = [list(sim.rows), sim.now, sim.updates, sim.bytes, sim.queued, sim.served, sim.breakdown()]
    return sha256(json.dumps(told).encode()).hexdigest()[:12]


def pairs():
    for name, values in CLUSTERS.items():
        for rule in RULES:
            if name not in ("events", "scripted") or rule == "asgd" or (name, rule) == ("events", "sync"):
                yield f"{rule} on {name}", (values, rule)


PAIRS = dict(pairs())


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_an_old_configuration_keeps_its_address(name):
    assert address(CONFIGURATIONS[name]) == ADDRESSES[name]


@pytest.mark.parametrize("name", PAIRS)
def test_an_old_cluster_keeps_its_times_to_the_bit(name):
    values, rule = PAIRS[name]
    assert trace_of(cluster(**values), rule) == TRACES[name]


if __name__ == "__main__":  # how they were computed
    print(json.dumps({name: address(values) for name, values in CONFIGURATIONS.items()}, indent=4))
    print(json.dumps({name: trace_of(cluster(**values), rule) for name, (values, rule) in PAIRS.items()}, indent=4))
