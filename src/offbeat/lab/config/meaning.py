"""Every key of a configuration in a row: its type, its default, what it means, and an example."""

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from offbeat.engines.cluster import UNLIMITED, Cluster, Links
from offbeat.lab.config.config import Config
from offbeat.lab.config.keys import cluster_keys, known_keys


class Key(NamedTuple):
    """One key, for reading."""

    key: str
    type: str
    default: Any
    meaning: str
    example: str


MEANING: Mapping[str, tuple[str, str]] = {
    "task.name": ("what is optimised: a name of `offbeat list tasks`, or package.module:factory", "digits"),
    "solver.name": ("the rule: a name of `offbeat list solvers`, or package.module:Class", "dc-asgd"),
    "optimizer.name": ("a torch optimizer, lars or lamb", "adam"),
    "optimizer.lr": ("the learning rate", "0.1"),
    "optimizer.multipliers": (
        "factors of learning rate and weight decay, by pattern of parameter names",
        "{'*.bias' = {lr = 2.0}}",
    ),
    "optimizer.first": ("another optimizer for the first samples", "{name = 'adam', lr = 0.001, for = '1epochs'}"),
    "cluster.workers": ("number of workers", "8"),
    "cluster.compute": (
        "time of a mini-batch, for all or by worker; also by its samples, '2ms + 0.12ms/sample', or 'trace(times.csv)'",
        "['10ms', '40ms@0']",
    ),
    "cluster.delay": ("extra delay of a mini-batch, for all or by worker", "['normal(30ms,5ms)@2-3']"),
    "cluster.latency": ("time a message takes, whatever its size", "1ms"),
    "cluster.bandwidth": ("of each link between a worker and the server", "1Gbit/s"),
    "cluster.service": ("time the server is busy with a message", "100us"),
    "cluster.allreduce": ("how workers sum among themselves: ring, hierarchical(8), halving-doubling, auto", "auto"),
    "cluster.events": ("workers that leave and join", "['lose 3 at 55ms', 'join 4 at 33ms']"),
    "cluster.peers": ("latency between two workers that exchange parameters", "['2ms', '5ms@0>1']"),
    "cluster.memory": ("time of one pass over a shared vector", "1us"),
    "cluster.feeder": ("time of a node that makes each batch, before a worker can begin with it", "2ms"),
    "cluster.schedule": ("who arrives when, given outright", "[[0.01, 0], [0.02, 1]]"),
    "cluster.server.bandwidth": ("of the server's own link, each way, which all messages share", "10Gbps"),
    "cluster.server.sharing": ("one message after another (fifo), or all at once with equal shares (fair)", "fair"),
    "cluster.server.shards": ("machines that hold a part of the vector each, with one coordinator", "4"),
    "cluster.speed": ("how many times as fast workers compute", "['2x@0-1']"),
    "cluster.slow": (
        "how many times as slow workers are, for good or for a while",
        "['3x for exp(20s) every exp(200s)']",
    ),
    "cluster.cores": (
        "of each node, shared by its workers that compute; one for each worker unless given",
        "2",
    ),
    "cluster.cores_for": (
        "what needs a core: computing, or everything on one machine, messages and the server, too",
        "everything",
    ),
    "cluster.slice": ("how long one keeps a core while others wait for it; 0: equal shares at every moment", "4ms"),
    "cluster.loss": (
        "workers that are lost at random and come back",
        "['every exp(1h), back after lognormal(60s, 30s)']",
    ),
    "cluster.nodes": ("machines that the workers are on; each on its own unless given", "2"),
    "cluster.racks": ("racks that the nodes are in; one unless given", "2"),
    "cluster.link.inside": (
        "latency and bandwidth inside a node; those of a worker's link unless given",
        "2us, 100Gbps",
    ),
    "cluster.link.between": ("likewise, of a node's link to other nodes", "50us, 10Gbps"),
    "cluster.link.racks": ("likewise, of a rack's link to other racks; that of a node unless given", "100us, 40Gbps"),
    "data.batch": ("samples of one worker's mini-batch", "64"),
    "data.global_batch": ("samples of a mini-batch shared by the workers", "256"),
    "data.first_batch": ("the batch grows from this", "8"),
    "data.batch_warmup": ("over what it grows", "2epochs"),
    "data.partition": ("who has which samples", "dirichlet(0.5)"),
    "data.sampling": ("every sample once an epoch, or drawn with replacement", "replacement"),
    "data.validation": ("share of the training set to evaluate on instead of the test set", "0.1"),
    "data.folds": ("number of folds of cross-validation", "5"),
    "data.fold": ("the fold that is held out, from 0", "2"),
    "budget.epochs": ("how long, in passes over the training set; one unit at a time", "20"),
    "budget.samples": ("how long, in samples", "50000"),
    "budget.updates": ("how long, in updates", "1000"),
    "budget.seconds": ("how long, on the engine's clock", "30"),
    "budget.until": ("stop at a target", "accuracy=0.98"),
    "budget.per": ("whether the budget is everybody's or each worker's", "worker"),
    "schedule.kind": ("the learning rate over the samples processed by everybody", "cosine"),
    "schedule.warmup": ("over what it grows to its value at first", "2epochs"),
    "schedule.over": ("the length of the schedule; that of the budget unless given", "30epochs"),
    "schedule.power": ("of the polynomial", "2.0"),
    "schedule.milestones": ("where multistep multiplies by gamma", "['10epochs', '15epochs']"),
    "schedule.gamma": ("factor at a milestone, or an epoch of the exponential", "0.5"),
    "schedule.floor": ("smallest factor", "0.01"),
    "scale.workers": ("number of workers for which learning rate and batch are meant", "4"),
    "scale.lr": ("what more workers do to the learning rate", "linear"),
    "scale.batch": ("what more workers do to the batch", "inverse"),
    "evaluate.every": ("how often it is evaluated; not in seconds", "500updates"),
    "evaluate.patience": ("stop after so many evaluations without a better one", "5"),
    "evaluate.keep_best": ("whether the best parameters seen are kept", "false"),
    "record.gap": ("whether the distance between stale and fresh parameters is recorded", "false"),
    "record.saves_per_epoch": ("snapshots of the parameters along the way, for landscapes", "4"),
    "record.diagnose_every": ("compare every so many gradients with the fresh one of the same batch", "10"),
    "engine": ("what runs it (`offbeat list engines`)", "local"),
    "local.on_loss": ("what happens when a process is lost", "leave out"),
    "local.patience": ("after how long a silent process is taken for lost", "2min"),
    "local.restarts": ("how many lost processes are started again", "5"),
    "local.start": ("with how many of the workers it begins; all unless given (`offbeat scale` brings more)", "4"),
    "local.floor": ("as few workers as it goes on with; 1 unless given", "2"),
    "ray.address": ("of a running Ray cluster; without, a Ray is started on this machine", "10.0.0.1:6379"),
    "ray.transport": ("how vectors travel: over sockets of our own, or through Ray's calls", "actor"),
    "ray.encryption": ("of vectors on their way; auto: where they cross machines", "off"),
    "ray.shared_memory": ("whether vectors of workers on the server's machine go through memory", "off"),
    "ray.allreduce": ("who sums in all-reduce methods: the server, or workers among themselves by gloo", "gloo"),
    "ray.shards": ("in how many parts the server's vectors lie, each in a process of its own", "4"),
    "ray.cpus": ("set aside for each worker", "2"),
    "ray.gpus": ("set aside for each worker", "1"),
    "ray.server_cpus": ("set aside for the server, and for each of its shards", "1"),
    "ray.server": ("where the server is placed: driver, any, or a machine's address", "any"),
    "ray.wait": ("how long to wait for places", "10min"),
    "seed": ("of everything random", "7"),
    "on_divergence": ("whether a run that diverges goes on", "continue"),
}


_YOUNG: Mapping[str, Any] = {
    "server.bandwidth": UNLIMITED,
    "server.sharing": "fifo",
    "server.shards": 1,
    "cores_for": "computing",
    "slice": "0s",
}
"""What a cluster does not write unless it is set, and what it then is."""
_KINDS = dict.fromkeys(("cores", "nodes", "racks"), "whole number") | {
    f"link.{name}": "text" for name in Links.__dataclass_fields__
}


def keys() -> list[Key]:
    """All keys that do not depend on a choice of task, solver or optimizer, by section."""
    usual = dict(_usual(Config)) | {f"cluster.{k}": v for k, v in _cluster()}
    order = {name: n for n, name in enumerate(Config.model_fields)}
    names = sorted(known_keys(), key=lambda key: order[key.partition(".")[0]])
    return [Key(name, *usual[name], *MEANING[name]) for name in names]


def _usual(kind: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, tuple[str, Any]]]:
    """Type and default of every field."""
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _usual(field.annotation, f"{prefix}{name}.")
        else:
            default = None if field.default is PydanticUndefined else field.default
            yield prefix + name, (_type(field.annotation), list(default) if isinstance(default, tuple) else default)


def _cluster() -> Iterator[tuple[str, tuple[str, Any]]]:
    """A cluster's own fields, as they are written."""
    written = Cluster.parse(workers=4).to_dict()
    for name in cluster_keys():
        value = written.get(name, _YOUNG.get(name))
        kind = {int: "whole number", list: "list", NoneType: "list"}.get(type(value), "text")
        if value is None and name in _KINDS:
            kind = _KINDS[name]
        yield name, (kind, value)


def _type(annotation: Any) -> str:
    """A type in plain words."""
    if get_origin(annotation) is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        return " | ".join(_type(a) for a in get_args(annotation) if a is not NoneType)
    plain = {str: "text", int: "whole number", float: "number", bool: "true | false"}
    return plain.get(annotation) or {tuple: "list", dict: "table"}.get(get_origin(annotation) or annotation, "table")
