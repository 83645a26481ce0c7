"""The calibration of a forecaster on validation windows, and the verdict on it."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from torch import Tensor

from bayesrnn.methods.base import Network
from bayesrnn.random import seeded
from bayesrnn.report.text import number_text
from bayesrnn.runs.task import ValidationScore
from bayesrnn.runs.verdict import Finding, Verdict, draws_finding
from bayesrnn.tasks.forecast.backtest import backtest, known_windows
from bayesrnn.tasks.forecast.data import ForecastData
from bayesrnn.tasks.forecast.evaluate import PATHS
from bayesrnn.tasks.forecast.likelihood import horizon_log_probs
from bayesrnn.tasks.forecast.scores import Scores
from bayesrnn.tasks.forecast.trained import TrainedForecaster
from bayesrnn.uncertainty.draws import Draws, networks_to_read

#: Validation windows that are fitted to, and windows that the verdict is on.
FITTED_WINDOWS: Final = 1000
JUDGED_WINDOWS: Final = 200
#: A distance of the coverage of 80% intervals from 80% that can be lived with.
LARGEST_MISS: Final = 0.08


def window_score(run: TrainedForecaster, data: ForecastData, whole: bool) -> ValidationScore:
    """The density of the values of validation windows, each given those before it."""
    places = data.places("valid")
    kept = places if whole else places.spread(FITTED_WINDOWS)
    windows = data.to(run.device).windows(kept)
    likelihood = data.layout.likelihood

    def score(network: Network, temperatures: Sequence[float]) -> Tensor:
        return horizon_log_probs(network, windows, likelihood, temperatures).cpu()

    return ValidationScore("value", score, len(kept.series) == len(places.series))


def forecast_verdict(run: TrainedForecaster, data: ForecastData) -> Verdict | None:
    """Draws against the mean, coverage, and the error against that of seasonal naive.

    On the calibration windows, which have chosen nothing, or else on the validation windows. The
    draws are as `bayesrnn forecast` makes them: with the noise of training.
    """
    calibration = run.calibrated()
    if calibration is None:
        return None
    part = "calibration" if len(data.places("calibration").series) else "valid"
    places = data.places(part).spread(JUDGED_WINDOWS)
    samples = calibration.samples
    draws = Draws(run.method, run.net, samples, seeded(calibration.seed))
    paths = max(2, PATHS // networks_to_read(run.method, run.net, samples))
    known = known_windows(data, places)
    found = backtest(data.to(run.device), known, draws, paths, seeded(calibration.seed))
    findings = (
        draws_finding(calibration),
        _coverage_finding(found.network),
        naive_finding(found.network, found.seasonal),
    )
    return Verdict(findings, found.network.values, "value")


def _coverage_finding(scores: Scores) -> Finding:
    held = scores.coverage["80"]
    # The values of a window go together, so that windows are what is counted.
    chance = 2 * math.sqrt(0.8 * 0.2 / scores.windows)
    good = abs(held - 0.8) <= max(LARGEST_MISS, chance)
    return Finding(f"80% intervals hold {held:.0%}", {"coverage_80": held}, good)


def naive_finding(scores: Scores, naive: Scores) -> Finding:
    """Whether the forecasts are better than seasonal naive, and by more than chance."""
    metrics = {"wql": scores.wql, "naive_wql": naive.wql, "mase": scores.mase}
    metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
    better = scores.wql < naive.wql
    wql, naive_wql = number_text(scores.wql, 4), number_text(naive.wql, 4)
    compared = f"WQL {wql} against {naive_wql} of seasonal naive"
    if math.isfinite(scores.mase):
        compared += f", MASE {scores.mase:.3f} against {naive.mase:.3f}"
    if not better:
        return Finding(f"not better than seasonal naive, use that: {compared}", metrics, False)
    doubtful = "" if is_real(scores, naive) else ", which may be chance"
    return Finding(f"{compared}{doubtful}", metrics)


def is_real(scores: Scores, naive: Scores) -> bool:
    """Whether the mean over windows of what is gained in MASE is above two standard errors."""
    gains = naive.mase_by_window - scores.mase_by_window
    gains = gains[~np.isnan(gains)]
    if len(gains) < 2:
        return False
    error = float(gains.std(ddof=1)) / math.sqrt(len(gains))
    return bool(gains.mean() > 2 * error)
