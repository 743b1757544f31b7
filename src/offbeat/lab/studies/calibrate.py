"""`offbeat calibrate`: a cluster for the simulator, fitted to real runs or recordings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from offbeat.core.errors import ConfigError
from offbeat.core.units import counted, format_duration, format_rate
from offbeat.engines.cluster import Cluster, PerWorker, ServerMachine, Slowness, Speed
from offbeat.engines.cluster.batch_times import PerSample
from offbeat.engines.cluster.distributions import ZERO, Constant, Exponential, Lognormal
from offbeat.engines.cluster.server import ONE_SERVER
from offbeat.folders.recordings import is_recording, read_recording
from offbeat.folders.run_files import RunFiles
from offbeat.lab.clusters import FORMAT
from offbeat.lab.config import to_toml
from offbeat.lab.fitting.computing_fit import ComputingFit, fit_computing, uncrowded
from offbeat.lab.fitting.crowd_fit import CrowdFit, Sharing, fit_crowd
from offbeat.lab.fitting.evidence import Evidence, cluster_of, of_recording, of_run
from offbeat.lab.fitting.exchanges import Exchanges, fit_exchanges
from offbeat.lab.fitting.noise_fit import FittedSpells, NoiseFit, fit_noise
from offbeat.lab.runs.conditions import cores

if TYPE_CHECKING:
    from offbeat.report.pages.page import Page


@dataclass(frozen=True)
class Calibration:
    """A cluster, what it was fitted to, and what that could not tell. In a notebook it shows itself."""

    cluster: Cluster
    evidence: Sequence[Evidence]
    computing: ComputingFit
    noise: NoiseFit
    exchanges: Exchanges
    crowd: CrowdFit

    @property
    def model(self) -> str:
        """Whose batches the compute times are."""
        return self.evidence[0].model

    @property
    def unknown(self) -> list[str]:
        """What the runs cannot tell, in words."""
        others = sorted({e.model for e in self.evidence} - {self.model})
        found = [f"compute of {name}: it is fitted to {self.model}" for name in others]
        found += [*self.computing.unknown, *self.crowd.unknown, *self.exchanges.unknown]
        if not self.noise.between:
            found.append("the noise between equal runs: no two are equal")
        return found

    def page(self) -> "Page":
        from offbeat.lab.studies.calibration_page import calibration_page

        return calibration_page(self)

    def _repr_html_(self) -> str:
        return self.page()._repr_html_()

    def __repr__(self) -> str:
        return "\n".join([as_toml(self).strip(), *(f"cannot tell {what}" for what in self.unknown)])


def calibrate(paths: Sequence[Path | str], *, steps: str | None = None) -> Calibration:
    """The cluster that real runs, or recordings, were made on.

    Args:
        paths: folders of finished runs on real processes (local, ray), Chrome or Perfetto traces, exports of
            torch.profiler (`.json`, `.json.gz`), tables of step times (`.csv`). Compute times are of the first one's
            model.
        steps: in a trace, a pattern of the names of the slices that are steps; those of torch.profiler unless given.
    """
    if not paths:
        raise ConfigError("calibrate needs a run, or several")
    found = [_evidence(Path(path), steps) for path in paths]
    first = Path(paths[0])
    alone = cluster_of(RunFiles.open(first)) if len(found) == 1 and not is_recording(first) else None
    return fit(found, alone)


def _evidence(path: Path, steps: str | None) -> Evidence:
    if is_recording(path):
        return of_recording(read_recording(path, steps))
    return of_run(RunFiles.open(path))


def fit(evidence: Sequence[Evidence], described: Cluster | None = None) -> Calibration:
    """A fit of each part. `described` is the cluster that a single run was configured with: delays and events stay."""
    there = cores()
    apart = {e.model: _apart(e.model, evidence, there) for e in evidence}

    def crowd_of(sharing: Sharing, e: Evidence) -> Cluster:
        return machine(*apart[e.model], sharing, e.cluster or Cluster(workers=e.workers))

    crowd = fit_crowd(evidence, there, crowd_of)
    fitted = apart[evidence[0].model]
    theirs = described or Cluster(workers=max(e.workers for e in evidence))
    return Calibration(machine(*fitted, crowd.sharing, theirs), evidence, *fitted, crowd)


def _apart(model: str, evidence: Sequence[Evidence], there: int) -> tuple[ComputingFit, NoiseFit, Exchanges]:
    """What can be told of each worker alone. Where cores are shared, messages and noise are not their own."""
    mine = [e for e in evidence if e.model == model]
    others = [e for e in evidence if e.model != model]
    alone = uncrowded([*mine, *others], there)
    return fit_computing(mine, there), fit_noise(uncrowded(mine, there), evidence), fit_exchanges(alone)


def machine(
    computing: ComputingFit, noise: NoiseFit, exchanges: Exchanges, sharing: Sharing | None, theirs: Cluster
) -> Cluster:
    """The machine that was fitted, with the workers, delays and events of a cluster that is to be predicted."""
    slow = None if noise.spells is None else _slowness(noise.spells)
    # The mean that was measured has slow times in it: this is that of the others.
    usual = 1.0 if slow is None else 1 - slow.share + slow.share / slow.factor
    noisy = Lognormal(1.0, _rounded(noise.spread))
    times = PerSample(
        Constant(_rounded(computing.base * usual)), Constant(_rounded(computing.per_sample * usual)), noisy
    )
    return replace(
        theirs,
        compute=(PerWorker(times),),
        speed=tuple(Speed(_rounded(s), (w,)) for w, s in computing.speeds.items() if w < theirs.workers),
        slow=() if slow is None else (slow,),
        **_shared(sharing, theirs),
        latency=_rounded(exchanges.latency),
        bandwidth=_rounded(exchanges.bandwidth),
        service=Constant(_rounded(exchanges.service)),
        server=theirs.server if exchanges.server is None else _link_of(exchanges.server),
        memory=_rounded(exchanges.memory),
    )


def _shared(sharing: Sharing | None, theirs: Cluster) -> dict[str, Any]:
    if sharing is None:
        return {"cores": None, "cores_for": "computing", "slice": ZERO}
    one_machine = theirs.server == ONE_SERVER and (theirs.nodes or 1) == 1
    turns = Exponential(_rounded(sharing.slice)) if sharing.slice else ZERO
    return {"cores": sharing.cores, "cores_for": sharing.cores_for if one_machine else "computing", "slice": turns}


def _slowness(found: FittedSpells) -> Slowness:
    lasts, every = Exponential(_rounded(found.slow_seconds)), Exponential(_rounded(found.usual_seconds))
    return Slowness(_rounded(found.factor), lasts, every)


def _link_of(found: ServerMachine) -> ServerMachine:
    return replace(found, bandwidth=_rounded(found.bandwidth))


def _rounded(value: float) -> float:
    """Four digits: no fit knows more."""
    return float(f"{value:.4g}")


def as_toml(found: Calibration) -> str:
    """A file that `--cluster` takes; what is beside the section `[cluster]` is for reading."""
    noise = found.noise
    told: dict[str, Any] = {
        "runs": [e.label for e in found.evidence],
        "model": found.model,
        "batch": found.computing.batch,
        "noise": round(noise.spread, 4),
        "autocorrelation": round(float(noise.autocorrelation[0]), 4) if len(noise.autocorrelation) else None,
        "crowds_off": None if found.crowd.off is None else round(found.crowd.off, 4),
        "between_runs": round(noise.between, 4),
        "unknown": found.unknown,
    }
    return to_toml({"format": FORMAT, "cluster": found.cluster.to_dict(), "fit": told})


def parts(found: Calibration) -> list[tuple[str, str, str]]:
    """Each part that was fitted: its name, its value, and what it comes from."""
    c, n, x = found.computing, found.noise, found.exchanges
    gradients = counted(sum(e.gradients for e in found.evidence), "gradient")
    calls, sums = sum(e.calls for e in found.evidence), sum(len(e.sums) for e in found.evidence)
    turns = sum(len(e.turns) for e in found.evidence)
    rows = [
        (
            "compute",
            f"{format_duration(_rounded(c.base))} + {format_duration(_rounded(c.per_sample))} a sample",
            gradients,
        ),
        ("noise", f"{n.spread:.1%} of the mean", gradients),
    ]
    if (s := found.crowd.sharing) is not None:
        how = f"in slices of {format_duration(_rounded(s.slice))}" if s.slice else "equally"
        rows.append((f"cores for {s.cores_for}", f"{s.cores}, shared {how}", "runs with more workers than cores"))
    rows += [(f"speed of worker {w}", f"{s:.2f}", gradients) for w, s in c.speeds.items()]
    if n.spells is not None:
        t = n.spells
        spells = f"{t.factor:.2f} times as slow for {t.slow_seconds:.3g} s, after {t.usual_seconds:.3g} s without"
        rows.append(("slow spells", spells, gradients))
    if calls or sums:
        told = f"{counted(calls, 'message')}, {counted(sums, 'sum')}"
        rows.append(("latency, each way", format_duration(_rounded(x.latency)), told))
        if np.isfinite(x.bandwidth):
            rows.append(("bandwidth", format_rate(_rounded(x.bandwidth)), told))
        if x.server is not None:
            how = "one message after another" if x.server.sharing == "fifo" else "all at once, in equal shares"
            rows.append(("the server's own link", f"{format_rate(_rounded(x.server.bandwidth))}, {how}", told))
    if calls:
        rows.append(("service", format_duration(_rounded(x.service)), counted(calls, "message")))
    if turns:
        rows.append(("a pass over shared memory", format_duration(_rounded(x.memory)), counted(turns, "turn")))
    if n.between:
        rows.append(("between equal runs", f"{n.between:.1%} of the mean", counted(len(found.evidence), "run")))
    return rows
