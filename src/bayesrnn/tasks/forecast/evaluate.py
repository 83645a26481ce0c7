"""How well a run forecasts: a backtest on the windows of a split, beside naive forecasts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch

from bayesrnn.methods.base import Bounded, Network, Outcome
from bayesrnn.options import CheckedOptions, option
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.report.text import counted, number_text
from bayesrnn.runs.evaluation import (
    CALIBRATED,
    Evaluation,
    EvaluationSettings,
    Inference,
    Row,
    about,
    asked_row,
    inference_rows,
    kl_text,
)
from bayesrnn.tasks.forecast.backtest import (
    Backtest,
    calibrating,
    calibration_of,
    known_forecasts,
    known_windows,
    scored,
)
from bayesrnn.tasks.forecast.data import ForecastData
from bayesrnn.tasks.forecast.likelihood import horizon_log_probs, window_loss
from bayesrnn.tasks.forecast.scores import without_nan
from bayesrnn.tasks.forecast.slices import Places
from bayesrnn.tasks.forecast.trained import TrainedForecaster
from bayesrnn.tasks.forecast.windows import Windows
from bayesrnn.uncertainty.bound import BoundedLikelihood, SummedMinibatch, likelihood_bound
from bayesrnn.uncertainty.draws import Draws, networks_to_read

#: Paths of each window, shared out to the draws.
PATHS = 100
#: How the names of inferences begin whose networks were trained anew.
REFITTED: Final = "refit"


@dataclass(frozen=True)
class BacktestOptions(CheckedOptions):
    """What a backtest can be asked."""

    windows: int | None = option(
        None, "only the last N windows of each series in the split (default: all)", gt=0
    )
    refit: int = option(
        0,
        "train the network anew so many times on the way through the test windows, each time on "
        "all that lies before those that it then forecasts; 0: never",
        ge=0,
    )
    paths: int = option(PATHS, "paths into the future of each window, of all draws together", ge=10)


@dataclass(frozen=True, kw_only=True)
class ForecastRow(Row):
    """The metrics of one inference; `*_calibrated` with the intervals of split-conformal.

    nll: of each value given those before it, in units of its window.
    coverage, width: by level in percent.
    by_window: of each window its series, its start, and what `compare` resamples.
    """

    stored_only: ClassVar[tuple[str, ...]] = ("by_window",)

    nll: float
    kl: float | None = None
    standard_error: float | None = None
    mase: float | None = None
    wql: float | None = None
    crps: float | None = None
    smape: float | None = None
    msis: float | None = None
    nd: float | None = None
    coverage: dict[str, float] | None = None
    width: dict[str, float] | None = None
    msis_calibrated: float | None = None
    coverage_calibrated: dict[str, float] | None = None
    width_calibrated: dict[str, float] | None = None
    coverage_by_step: dict[str, tuple[float, ...]] | None = None
    mase_by_step: tuple[float, ...] | None = None
    by_window: dict[str, tuple[float, ...]] | None = None
    epistemic_share: float | None = None
    windows: int | None = None
    values: int


@dataclass(frozen=True, kw_only=True)
class ForecastEvaluation(Evaluation):
    """The rows, and what naive forecasts reach on the same windows."""

    data: str
    season: int
    horizon: int
    refit: int | None = None
    seasonal_naive: dict[str, Any]
    last_value: dict[str, Any]


def window_log_probs(draws: Draws, windows: Windows, likelihood: str) -> torch.Tensor:
    """The log of the mean density over draws of each value of the horizons, float64 [values]."""
    found = [
        horizon_log_probs(network, windows, likelihood, [1.0])[0].double()
        for network in draws.networks()
    ]
    return torch.stack(found).logsumexp(0) - torch.tensor(float(len(found))).log()


@dataclass(frozen=True)
class Fold:
    """A trained network and the windows that it forecasts.

    data, places: as the network knows them. origins: the same windows among all series of the run.
    """

    run: TrainedForecaster
    data: ForecastData
    places: Places
    origins: Places

    @property
    def windows(self) -> Windows:
        """What the network reads and has to say."""
        return self.data.windows(self.places)


def evaluate_forecasts(
    run: TrainedForecaster,
    data: ForecastData,
    settings: EvaluationSettings,
    options: BacktestOptions,
    refitted: Callable[[Places], list[Fold]],
) -> ForecastEvaluation:
    """The rows of a run on a split of its own series.

    refitted: from the windows to networks trained anew, each with its part of them.
    """
    data = data.to(run.device)
    places = last_windows(data.places(settings.split), options.windows)
    folds = refitted(places) if options.refit else [Fold(run, data, places, places)]
    with torch.no_grad():
        return _evaluated(run, data, folds, settings, options)


def _evaluated(
    run: TrainedForecaster,
    data: ForecastData,
    folds: Sequence[Fold],
    settings: EvaluationSettings,
    options: BacktestOptions,
) -> ForecastEvaluation:
    layout, found = data.layout, list[Backtest]()

    def averaged(inference: Inference) -> ForecastRow:
        networks = networks_to_read(run.method, run.net, inference.samples)
        paths = max(2, options.paths // networks)
        windows = sum(
            len(f.places.series) + len(calibrating(f.data, f.places).series) for f in folds
        )
        parts, log_probs = [], []
        with progress_bar(
            windows * networks * paths * layout.horizon, " values", "evaluating"
        ) as bar:
            for fold in folds:
                generator, noise = seeded(settings.seed), seeded(settings.seed)
                method, net = fold.run.method, fold.run.net
                draws = Draws(method, net, inference.samples, generator, inference.scales)
                calibration = calibration_of(
                    fold.data, draws, paths, noise, bar.update, windows=fold.places
                )
                known = known_windows(fold.data, fold.places)
                made = (fold.data, known, draws, paths, noise, calibration, bar.update)
                parts.append(known_forecasts(*made))
                log_probs.append(window_log_probs(draws, fold.windows, layout.likelihood))
        found.append(scored(parts, layout.season))
        origins = [torch.cat(of) for of in zip(*(fold.origins for fold in folds), strict=True)]
        nll = -torch.cat(log_probs).mean().item()
        named = _named(inference, options.refit)
        return ForecastRow(**named._asdict(), **_columns(found[-1], Places(*origins)), nll=nll)

    def bounded(inference: Inference, method: Bounded) -> ForecastRow:
        del method  # each fold has its own
        bounds = [_bound(fold, settings) for fold in folds]
        tokens = sum(bound.tokens for bound in bounds)
        shares = [bound.tokens / tokens for bound in bounds]
        errors = [bound.standard_error for bound in bounds]
        known = [error for error in errors if error is not None]
        weighted = [share * error for share, error in zip(shares, known, strict=False)]
        return ForecastRow(
            **_named(inference, options.refit)._asdict(),
            nll=sum(share * bound.nll for share, bound in zip(shares, bounds, strict=True)),
            kl=sum(share * bound.kl for share, bound in zip(shares, bounds, strict=True)),
            standard_error=math.hypot(*weighted) if len(known) == len(errors) else None,
            values=tokens,
        )

    rows = inference_rows(run, settings, averaged, bounded)
    return ForecastEvaluation(
        **about(run, settings),
        data=run.config.data,
        season=layout.season,
        horizon=layout.horizon,
        refit=options.refit or None,
        seasonal_naive=found[0].seasonal.as_json(),
        last_value=found[0].last.as_json(),
        rows=tuple(rows),
        asked=asked_row(rows, settings.samples),
    )


def _named(inference: Inference, refits: int) -> Inference:
    """The inference, by a name of its own where networks were trained anew."""
    if not refits:
        return inference
    kind = "calibrated-" if inference.scaling is not None else ""
    return inference._replace(
        inference=f"{REFITTED}{refits}-{kind}{inference.inference.removesuffix(CALIBRATED)}",
        label=f"{inference.label}, trained anew {counted(refits, 'time')}",
    )


def _bound(fold: Fold, settings: EvaluationSettings) -> BoundedLikelihood:
    """The bound of one fold, by a method that has one."""
    method, windows, layout = fold.run.method, fold.windows, fold.data.layout
    assert isinstance(method, Bounded)
    size = fold.run.config.batch_size
    minibatches = (
        _summed(windows.part(slice(first, first + size)), layout.likelihood)
        for first in range(0, len(windows), size)
    )
    steps = len(windows) * (layout.context + layout.horizon)
    with progress_bar(steps, " values", "bounding") as bar:
        return likelihood_bound(
            method, fold.run.net, minibatches, seeded(settings.seed), bar.update
        )


def last_windows(places: Places, count: int | None) -> Places:
    """The last windows of each series; None: all."""
    if count is None:
        return places
    kept = [
        number
        for series in sorted(set(places.series.tolist()))
        for number in (places.series == series).nonzero().flatten().tolist()[-count:]
    ]
    return Places(places.series[kept], places.starts[kept])


def _summed(windows: Windows, likelihood: str) -> SummedMinibatch:
    layout = windows.layout
    places = windows.steps(-layout.context, layout.context + layout.horizon)

    def objective(network: Network) -> Outcome:
        return Outcome(window_loss(windows, network, likelihood) * len(windows), None)

    return lambda state: objective, int(windows.scored(places).sum())


def _columns(found: Backtest, places: Places) -> dict[str, Any]:
    own, calibrated = found.network, found.calibrated
    where = {"series": tuple(places.series.tolist()), "start": tuple(places.starts.tolist())}
    names = ("mase", "wql", "crps", "smape", "msis", "nd", "mase_by_step", "windows", "values")
    made = {name: getattr(own, name) for name in names}
    made |= {
        "coverage": dict(own.coverage),
        "width": dict(own.width),
        "coverage_by_step": dict(own.coverage_by_step),
        "by_window": where | {name: tuple(of.tolist()) for name, of in own.by_window.items()},
        "epistemic_share": found.epistemic_share,
    }
    if calibrated is not None:
        made |= {
            "msis_calibrated": calibrated.msis,
            "coverage_calibrated": dict(calibrated.coverage),
            "width_calibrated": dict(calibrated.width),
        }
    return {name: without_nan(value) for name, value in made.items()}


def row_text(row: ForecastRow) -> str:
    """A row as text."""
    if row.windows is None:
        return f"nll <= {row.nll:.4f} a value{kl_text(row.kl, row.standard_error)}"
    return (
        f"MASE {number_text(row.mase)}, WQL {number_text(row.wql, 4)}, "
        f"CRPS {number_text(row.crps)}, MSIS {number_text(row.msis, 2)}, nll {row.nll:.4f}"
    )


def row_details(row: ForecastRow) -> list[str]:
    """How many values intervals held, as they are and calibrated."""
    if row.windows is None:
        return []
    text = f"{row.windows:,} windows: intervals hold {_held(row.coverage)}"
    if row.coverage_calibrated is not None:
        text += f"; calibrated, {_held(row.coverage_calibrated)}"
    return [text]


def _held(coverage: dict[str, float] | None) -> str:
    held = {level: share for level, share in (coverage or {}).items() if share is not None}
    return ", ".join(f"{level}%: {share:.0%}" for level, share in held.items())


def evaluation_notes(found: ForecastEvaluation) -> list[str]:
    """The naive forecasts, and the advice to use them where they are better."""
    naive = {
        f"seasonal naive (season {found.season})": found.seasonal_naive,
        "last value": found.last_value,
    }
    notes = [
        f"{name}: MASE {number_text(of['mase'])}, WQL {number_text(of['wql'], 4)}, CRPS "
        f"{number_text(of['crps'])}, MSIS {number_text(of['msis'], 2)}; intervals hold "
        f"{_held(of['coverage'])}"
        for name, of in naive.items()
    ]
    reached = [
        row.wql for row in found.rows if isinstance(row, ForecastRow) and row.wql is not None
    ]
    if reached and min(reached) >= found.seasonal_naive["wql"]:
        notes.append("Not better than seasonal naive on these windows: use that")
    return notes
