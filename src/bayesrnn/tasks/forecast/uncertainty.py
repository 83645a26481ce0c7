"""Do intervals hold what they say: far ahead, of short histories, of what is new, of series never
seen?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesrnn.data.series import Floats
from bayesrnn.options import option
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.report.table import distinct_names
from bayesrnn.runs.arguments import MeasurementOptions
from bayesrnn.runs.file_summary import summarise
from bayesrnn.runs.places import moved
from bayesrnn.runs.summary import RunSummary
from bayesrnn.runs.task import UncertaintyReport
from bayesrnn.tasks.forecast.backtest import (
    Advance,
    calibrated_bounds,
    calibrating,
    calibration_of,
    paths_of,
)
from bayesrnn.tasks.forecast.conformal import Calibration, errors_of
from bayesrnn.tasks.forecast.evaluate import PATHS
from bayesrnn.tasks.forecast.measured_windows import WHOLE, MeasuredWindows, measured_windows
from bayesrnn.tasks.forecast.resampling import drawn_ratios, interval, ratios
from bayesrnn.tasks.forecast.scores import (
    Cells,
    PathForecasts,
    cells_of,
    known_mean,
    without_nan,
)
from bayesrnn.tasks.forecast.task import TASK
from bayesrnn.tasks.forecast.trained import TrainedForecaster
from bayesrnn.tasks.forecast.uncertainty_report import (
    forecast_uncertainty_page,
    forecast_uncertainty_text,
)
from bayesrnn.tasks.forecast.uncertainty_results import (
    BY_NOVELTY,
    BY_SERIES,
    BY_STEP,
    ForecastGroup,
    ForecastLevel,
    ForecastUncertainty,
)
from bayesrnn.tasks.forecast.unlike import UNFAMILIAR_RANK, last_novelty
from bayesrnn.uncertainty.draws import Draws, networks_to_read

#: Parts that the steps of the horizon are taken together in.
_PARTS: Final = 6
#: Where the novelty of windows is cut.
_NOVELTIES: Final = (0.0, 0.5, UNFAMILIAR_RANK, np.inf)


@dataclass(frozen=True, kw_only=True)
class ForecastUncertaintyOptions(MeasurementOptions):
    """What to measure, and with how much effort."""

    samples: tuple[int, ...] = option(
        (0, 10), "numbers of draws", ge=0, zero="the mean weights", commas=True
    )
    shifts: tuple[str, ...] = option(
        (), "one more set of shifted inputs", repeated=True, flag="shift", metavar="NAME|PATH"
    )
    most_windows: int = option(
        400, "measure at most so many windows of a kind, spread over all", ge=1
    )


def forecast_uncertainty(
    runs: Sequence[Path], settings: ForecastUncertaintyOptions, checkpoint: str, device: str
) -> list[ForecastUncertainty]:
    """What the intervals of each run hold, as `bayesrnn forecast` makes them."""
    seeded(settings.seed)  # refuses one that is out of range
    summaries = [summarise(TASK, run) for run in runs]
    # All are loaded before the long work begins, so that a mistake is reported at once.
    trained = [moved(TASK, TASK.open_run(run, checkpoint, device), settings) for run in runs]
    kinds = [
        measured_windows(one, settings.split, settings.most_windows, settings.shifts)
        for one in trained
    ]
    return [
        _measured(one, name, summary, found, settings)
        for one, name, summary, found in zip(
            trained, distinct_names(summaries), summaries, kinds, strict=True
        )
    ]


@dataclass(frozen=True)
class _Found:
    """What is said of each value of windows: raw, calibrated, and the share of ignorance.

    calibration: with the windows of the run's own series.
    series: of which series each window is; those that share one go together.
    """

    raw: Cells
    calibrated: Cells | None
    calibration: Calibration | None
    share: Floats | None
    series: torch.Tensor


def _measured(
    trained: TrainedForecaster,
    name: str,
    summary: RunSummary,
    kinds: Sequence[MeasuredWindows],
    settings: ForecastUncertaintyOptions,
) -> ForecastUncertainty:
    own = next(kind for kind in kinds if kind.name == WHOLE)
    samples = sorted(set(settings.samples))
    networks = {n: networks_to_read(trained.method, trained.net, n) for n in samples}
    windows = sum(len(kind.places.series) for kind in kinds)
    windows += len(calibrating(own.data).series)
    work = sum(max(2, PATHS // n) * n for n in networks.values()) * own.data.layout.horizon
    with progress_bar(work * windows, " values", name) as bar:
        levels = [
            _level(trained, own, kinds, number, networks[number], settings, bar.update)
            for number in samples
        ]
    return ForecastUncertainty(
        name=name,
        path=str(trained.path),
        method=trained.config.method,
        data=summary.data,
        settings=f"{summary.network}, {summary.settings}",
        split=settings.split,
        step=trained.step,
        seed=settings.seed,
        bootstrap=settings.bootstrap,
        horizon=own.data.layout.horizon,
        season=own.data.layout.season,
        levels=tuple(levels),
    )


def _level(
    run: TrainedForecaster,
    own: MeasuredWindows,
    kinds: Sequence[MeasuredWindows],
    samples: int,
    networks: int,
    settings: ForecastUncertaintyOptions,
    advance: Advance,
) -> ForecastLevel:
    # As `bayesrnn forecast` does it: with the noise of training, and then split-conformal.
    draws = Draws(run.method, run.net, samples, seeded(settings.seed))
    paths = max(2, PATHS // networks)
    data = own.data.to(run.device)
    calibration = calibration_of(data, draws, paths, seeded(settings.seed), advance)
    of_own = _forecast(run, own, draws, paths, calibration, settings.seed, advance)
    groups: list[ForecastGroup] = []
    for kind in kinds:
        found = of_own
        if kind is not own:
            found = _forecast(run, kind, draws, paths, of_own.calibration, settings.seed, advance)
        groups.append(_group(kind.table, kind.name, found, None, settings))
    steps = _step_groups(of_own, settings)
    novelty = _novelty_groups(own, of_own, settings)
    series = _series_groups(own, of_own, settings)
    return ForecastLevel(
        samples=samples,
        groups=(*steps, *novelty, *series, *groups),
        coverage_by_step={
            str(level): tuple(known_mean(held, 0).tolist())
            for level, held in of_own.raw.held.items()
        },
        share_by_step=() if of_own.share is None else tuple(of_own.share.mean(0).tolist()),
    )


def _forecast(
    run: TrainedForecaster,
    kind: MeasuredWindows,
    draws: Draws,
    paths: int,
    calibration: Calibration | None,
    seed: int,
    advance: Advance,
) -> _Found:
    data = kind.data.to(run.device)
    made = paths_of(data, kind.places, draws, paths, seeded(seed), advance)
    forecasts = PathForecasts(made.all.cpu().numpy())
    calibrated = None
    if calibration is not None:
        if kind.name == WHOLE:
            errors = errors_of(forecasts, kind.truths)
            calibration = calibration.and_later(kind.back, errors)
        bounds = calibrated_bounds(calibration, forecasts, kind.back, data)
        calibrated = None if bounds is None else cells_of(forecasts, kind.truths, bounds)
    return _Found(
        raw=cells_of(forecasts, kind.truths),
        calibrated=calibrated,
        calibration=calibration,
        share=made.epistemic_share.cpu().numpy() if made.values.shape[1] > 1 else None,
        series=kind.series,
    )


def _step_groups(found: _Found, settings: ForecastUncertaintyOptions) -> list[ForecastGroup]:
    """The steps of the horizon, in parts of about as many."""
    horizon = found.raw.size.shape[1]
    groups = []
    for part in np.array_split(np.arange(horizon), min(_PARTS, horizon)):
        first, last = int(part[0]) + 1, int(part[-1]) + 1
        name = f"{first} to {last}" if last > first else f"{first}"
        chosen = np.zeros(found.raw.size.shape, dtype=bool)
        chosen[:, part] = True
        groups.append(_group(BY_STEP, name, found, chosen, settings))
    return groups


def _novelty_groups(
    own: MeasuredWindows, found: _Found, settings: ForecastUncertaintyOptions
) -> list[ForecastGroup]:
    """Windows by how unlike their past the values before them are."""
    layout, series = own.data.layout, own.data.series.series
    places = zip(own.places.series.tolist(), own.places.starts.tolist(), strict=True)
    novelty = np.array(
        [
            last_novelty(series[of].target[:at], layout.horizon, layout.season)[0]
            for of, at in places
        ]
    )
    names = ["below 0.5", f"0.5 to {UNFAMILIAR_RANK}", f"{UNFAMILIAR_RANK} or more"]
    groups = []
    for name, low, high in zip(names, _NOVELTIES[:-1], _NOVELTIES[1:], strict=True):
        rows = (novelty >= low) & (novelty < high)
        if rows.any():
            groups.append(_group(BY_NOVELTY, name, found, _rows(rows, found), settings))
    return groups


def _series_groups(
    own: MeasuredWindows, found: _Found, settings: ForecastUncertaintyOptions
) -> list[ForecastGroup]:
    """Series that were trained on, and those that were too short for that, if there are any."""
    trained = own.data.slices.train().series
    seen = torch.isin(found.series, trained).numpy()
    groups = [("trained on", seen), ("too short to train on", ~seen)]
    return [
        _group(BY_SERIES, name, found, _rows(rows, found), settings)
        for name, rows in groups
        if rows.any()
    ]


def _rows(rows: NDArray[np.bool_], found: _Found) -> NDArray[np.bool_]:
    return np.broadcast_to(rows[:, None], found.raw.size.shape)


def _group(
    table: str,
    name: str,
    found: _Found,
    chosen: NDArray[np.bool_] | None,
    settings: ForecastUncertaintyOptions,
) -> ForecastGroup:
    """The values that are chosen; all, if none are named."""
    there = ~np.isnan(found.raw.size)
    there = there if chosen is None else there & chosen
    rows = there.any(1)

    def sums(values: Floats) -> tuple[Tensor, Tensor]:
        """Of the chosen values and of their number, by window."""
        kept = np.where(there & ~np.isnan(values), values, 0.0).sum(1)[rows]
        counts = (there & ~np.isnan(values)).sum(1)[rows].astype(np.float64)
        return torch.from_numpy(kept), torch.from_numpy(counts)

    wanted = {("error", 0): sums(found.raw.error), ("width", 80): sums(found.raw.width[80])}
    if found.share is not None:
        wanted["share", 0] = sums(found.share)
    for kind, cells in (("raw", found.raw), ("calibrated", found.calibrated)):
        if cells is not None:
            wanted |= {(kind, level): sums(of) for level, of in cells.held.items()}
    series = found.series[torch.from_numpy(rows)]
    once = torch.ones(1, len(series), dtype=torch.double)
    values = {key: ratios(once, *of) for key, of in wanted.items()}
    drawn = {key: value[:0] for key, value in values.items()}
    if settings.bootstrap and len(series) > 1:
        drawn = drawn_ratios(series, wanted, settings.bootstrap, seeded(settings.seed))
    means = {key: interval(value.item(), drawn[key]) for key, value in values.items()}
    return ForecastGroup(
        table=table,
        name=name,
        windows=int(rows.sum()),
        values=int(there.sum()),
        mase=means["error", 0],
        coverage={str(level): of for (kind, level), of in means.items() if kind == "raw"},
        calibrated={str(level): of for (kind, level), of in means.items() if kind == "calibrated"},
        width=means["width", 80].value,
        epistemic_share=None if found.share is None else means["share", 0].value,
    )


def as_json(runs: Sequence[ForecastUncertainty]) -> list[dict[str, Any]]:
    """The values for a JSON file."""
    return [without_nan(asdict(run)) for run in runs]


REPORT = UncertaintyReport(
    ForecastUncertaintyOptions,
    forecast_uncertainty,
    forecast_uncertainty_page,
    as_json,
    forecast_uncertainty_text,
)
