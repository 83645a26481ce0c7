"""How well a run forecasts: a backtest on the windows of a split, beside naive forecasts."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from bayesrnn.methods.base import Bounded, Network, Outcome
from bayesrnn.options import CheckedOptions, option
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.report.text import number_text
from bayesrnn.runs.evaluation import (
    Evaluation,
    EvaluationSettings,
    Inference,
    Row,
    about,
    asked_row,
    inference_rows,
    kl_text,
)
from bayesrnn.tasks.forecast.backtest import Backtest, backtest, calibration_of, known_windows
from bayesrnn.tasks.forecast.data import ForecastData
from bayesrnn.tasks.forecast.likelihood import horizon_log_probs, window_loss
from bayesrnn.tasks.forecast.scores import without_nan
from bayesrnn.tasks.forecast.slices import Places
from bayesrnn.tasks.forecast.trained import TrainedForecaster
from bayesrnn.tasks.forecast.windows import Windows
from bayesrnn.uncertainty.bound import SummedMinibatch, likelihood_bound
from bayesrnn.uncertainty.draws import Draws, networks_to_read

#: Paths of each window, shared out to the draws.
PATHS = 100


@dataclass(frozen=True)
class BacktestOptions(CheckedOptions):
    """What a backtest can be asked."""

    windows: int | None = option(
        None, "only the last N windows of each series in the split (default: all)", gt=0
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
    seasonal_naive: dict[str, Any]
    last_value: dict[str, Any]


def window_log_probs(draws: Draws, windows: Windows, likelihood: str) -> torch.Tensor:
    """The log of the mean density over draws of each value of the horizons, float64 [values]."""
    found = [
        horizon_log_probs(network, windows, likelihood, [1.0])[0].double()
        for network in draws.networks()
    ]
    return torch.stack(found).logsumexp(0) - torch.tensor(float(len(found))).log()


@torch.no_grad()
def evaluate_forecasts(
    run: TrainedForecaster,
    data: ForecastData,
    settings: EvaluationSettings,
    options: BacktestOptions,
) -> ForecastEvaluation:
    """The rows of a run on a split of its own series."""
    data = data.to(run.device)
    places = last_windows(data.places(settings.split), options.windows)
    known = known_windows(data, places)
    windows, likelihood = data.windows(places), data.layout.likelihood
    found: list[Backtest] = []

    def averaged(inference: Inference) -> ForecastRow:
        generator = seeded(settings.seed)
        draws = Draws(run.method, run.net, inference.samples, generator, inference.scales)
        networks = networks_to_read(run.method, run.net, inference.samples)
        paths = max(2, options.paths // networks)
        both = len(known) + len(data.places("calibration").series)
        steps = both * networks * paths * data.layout.horizon
        with progress_bar(steps, " values", "evaluating") as bar:
            noise = seeded(settings.seed)
            widening = calibration_of(data, draws, paths, noise, bar.update)
            made = backtest(data, known, draws, paths, noise, widening, bar.update)
        found.append(made)
        log_probs = window_log_probs(draws, windows, likelihood)
        return ForecastRow(
            **inference._asdict(), **_columns(made, places), nll=-log_probs.mean().item()
        )

    def bounded(inference: Inference, method: Bounded) -> ForecastRow:
        size = run.config.batch_size
        minibatches = (
            _summed(windows.part(slice(first, first + size)), likelihood)
            for first in range(0, len(windows), size)
        )
        steps = len(windows) * (data.layout.context + data.layout.horizon)
        with progress_bar(steps, " values", "bounding") as bar:
            bound = likelihood_bound(
                method, run.net, minibatches, seeded(settings.seed), bar.update
            )
        return ForecastRow(
            **inference._asdict(),
            nll=bound.nll,
            kl=bound.kl,
            standard_error=bound.standard_error,
            values=bound.tokens,
        )

    rows = inference_rows(run, settings, averaged, bounded)
    return ForecastEvaluation(
        **about(run, settings),
        data=run.config.data,
        season=data.layout.season,
        horizon=data.layout.horizon,
        seasonal_naive=found[0].seasonal.as_json(),
        last_value=found[0].last.as_json(),
        rows=tuple(rows),
        asked=asked_row(rows, settings.samples),
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
