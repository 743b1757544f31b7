"""The page of a calibration: what the report needs to draw it."""

import numpy as np

from offbeat.lab.fitting.evidence import Evidence
from offbeat.lab.studies.calibrate import Calibration, as_toml, parts
from offbeat.report.figures.fit_quality import Fitted
from offbeat.report.pages.calibration import page
from offbeat.report.pages.page import Page


def calibration_page(found: Calibration) -> Page:
    mine = [e for e in found.evidence if e.model == found.model]
    left = {e.label: fitted_mean(found, e) / float(np.mean([s.usual.mean() for s in e.series])) - 1 for e in mine}
    memory = (found.noise.autocorrelation, found.noise.bound, _remembered(found))
    return page([_fitted(found, e) for e in mine], left, memory, parts(found), found.unknown, as_toml(found))


def fitted_mean(found: Calibration, e: Evidence) -> float:
    """What the fit says of the mean time of a run's batches."""
    shared = e.kind in ("local", "debug")
    computing = found.computing
    return float(np.mean([computing.seconds(e.batch, s.worker, e.workers, shared=shared) for s in e.series]))


def _fitted(found: Calibration, e: Evidence) -> Fitted:
    shared, spells = e.kind in ("local", "debug"), found.noise.spells
    ratios = [
        s.usual / found.computing.seconds(s.batch, s.worker, e.workers, shared=shared) for s in e.series if len(s.usual)
    ]
    started = [s.started[s.samples == s.batch] for s in e.series if len(s.usual)]
    share = 0.0 if spells is None else spells.slow_seconds / (spells.slow_seconds + spells.usual_seconds)
    order = np.argsort(np.concatenate(started), kind="stable")
    return Fitted(
        e.label,
        np.concatenate(started)[order],
        np.concatenate(ratios)[order],
        found.noise.spread,
        1.0 if spells is None else spells.factor,
        share,
    )


def _remembered(found: Calibration) -> list[float]:
    """The autocorrelation of the fit: none, or that of slow spells at the usual distance of two batches."""
    spells, lags = found.noise.spells, range(1, len(found.noise.autocorrelation) + 1)
    if spells is None:
        return [0.0 for _ in lags]
    apart = float(np.median(np.concatenate([np.diff(s.started) for e in found.evidence for s in e.series])))
    return [spells.autocorrelation(k * apart) for k in lags]
