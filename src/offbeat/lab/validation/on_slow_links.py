"""`offbeat validate --links`: the same on hosts of our own with slow links between them, where the rights allow it."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

import numpy as np
from msgspec import Struct

from offbeat.core.errors import OffbeatError
from offbeat.core.units import parse_rate
from offbeat.folders.description import ENDED, Name, Number, Seconds
from offbeat.folders.run_files import RunFiles
from offbeat.folders.writing import write_file
from offbeat.lab.config import to_toml
from offbeat.lab.validation.cases import RealCase
from offbeat.lab.validation.link_cases import LinkCase, SlowLinks, for_tc
from offbeat.lab.validation.measuring import CaseRuns, Say, folder_of, here, measure
from offbeat.lab.validation.predicting import calibrated_for
from offbeat.lab.validation.ray_hosts import RayHosts, check_rights, server_and_workers

_BESIDES = 300.0  # seconds that a run may take beside its own


class FoundLinks(Struct):
    """What `calibrate` found of links whose rates are known. Rates are bytes a second."""

    worker_told: Number
    server_told: Number
    latency: Seconds
    worker: Number | None
    """Of a worker's own link; None where the runs cannot tell."""
    server: Number | None
    sharing: Name | None
    unknown: list[Name]


def measure_on_hosts(
    cases: Sequence[RealCase], folder: Path, *, seconds: float, repeats: int, say: Say
) -> tuple[list[CaseRuns], dict[str, str]]:
    """All cases, and why some could not be run. Hosts are made if there is anything to run, and are gone at the end."""
    wanted = [c for c in cases for seed in range(repeats) if not _has_ended(folder_of(folder, c, seconds, seed))]
    with ExitStack() as stack:
        hosts = None
        if wanted:
            check_rights()
            workers = max(c.crowd.more for c in wanted)
            say(f"making {1 + workers} hosts, with a Ray node each")
            hosts = stack.enter_context(server_and_workers(workers))
        carry_out = OnHosts(hosts, seconds)
        return measure(cases, folder, seconds=seconds, repeats=repeats, engine="ray", say=say, carry_out=carry_out)


class OnHosts:
    """Carries cases out: the driver is a process on the first host."""

    def __init__(self, hosts: RayHosts | None, seconds: float) -> None:
        """`hosts`: None where there is nothing to run."""
        self._hosts, self._seconds = hosts, seconds
        self._links: SlowLinks | None = None

    def __call__(self, case: RealCase, values: dict[str, Any], folder: Path) -> None:
        assert isinstance(case, LinkCase)
        if self._hosts is None or _has_ended(folder):
            here(case, values, folder)  # which looks whether it is the same, and runs nothing
            return
        self._slow_down(self._hosts, case.links)
        folder.parent.mkdir(parents=True, exist_ok=True)
        described = folder.with_name(f"{folder.name}.toml")
        write_file(described, lambda file: file.write(to_toml(values).encode()))
        words = [sys.executable, "-m", "offbeat", "run", described.resolve(), "--out", folder.resolve()]
        words += ["--again", "--checkpoint-every", "24h", "--json"]
        try:
            done = self._hosts.run(1, *words, timeout=self._seconds + _BESIDES)
        except TimeoutExpired:
            raise OffbeatError(f"it had not ended {_BESIDES:g} s after its time") from None
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            raise OffbeatError(said[-1].removeprefix("offbeat: "))

    def _slow_down(self, hosts: RayHosts, links: SlowLinks) -> None:
        if links == self._links:
            return
        for k in range(1, hosts.count + 1):
            hosts.slow(k, for_tc(links.server if k == 1 else links.worker))
        self._links = links


def _has_ended(folder: Path) -> bool:
    return (folder / "run.json").exists() and RunFiles.open(folder).status in ENDED


def on_the_processor(measured: Sequence[CaseRuns]) -> dict[str, float]:
    """By case, the share of a round that is spent on a batch and on the server's service, and not on links.

    All hosts share the cores of one machine: where it is busy, this grows, and a run says little about links.
    """
    found: dict[str, float] = {}
    for m in measured:
        shares = []
        for e in m.evidence:
            batch = float(np.mean(np.concatenate([s.seconds for s in e.series])))
            service = e.served / e.calls if e.calls else 0.0
            if e.rate:
                shares.append((batch + service) * e.rate / (m.workers * m.case.batch))
        if shares:
            found[m.case.name] = round(float(np.mean(shares)), 4)
    return found


def found_links(measured: Sequence[CaseRuns]) -> dict[str, FoundLinks]:
    """For each kind of links, the fit to the runs of its fitted half."""
    known = [m for m in measured if m.case.half == "fit"]
    found: dict[str, FoundLinks] = {}
    for m in known:
        assert isinstance(m.case, LinkCase)
        links = m.case.links
        if str(links) in found or (fit := calibrated_for(known, m.case)) is None:
            continue
        x, server = fit.exchanges, fit.exchanges.server
        found[str(links)] = FoundLinks(
            parse_rate(links.worker),
            parse_rate(links.server),
            x.latency,
            x.bandwidth if x.bandwidth < inf else None,
            None if server is None else server.bandwidth,
            None if server is None else server.sharing,
            [said for said in x.unknown if not said.startswith("memory")],
        )
    return found
