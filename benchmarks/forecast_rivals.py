"""Models of other libraries on the windows that ours are tested on, scored by the same function.

AutoETS and MSTL are those of statsforecast, fitted anew to the last values before each window;
DeepAR is that of GluonTS, trained once on what lies before all test windows.
"""

import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from bayesrnn.data.reading import read_series
from bayesrnn.data.series import Floats
from bayesrnn.tasks.forecast.backtest import known_windows, naive_scores
from bayesrnn.tasks.forecast.data import ForecastData, Wishes, prepare
from bayesrnn.tasks.forecast.panel import filled
from bayesrnn.tasks.forecast.scores import Forecasts, score

#: The last values of a past that a classical model is fitted to.
FITTED_TO: Final = 2016
#: Levels whose ends are the deciles but the median, and those of 95%.
LEVELS: Final = (20, 40, 60, 80, 95)
SHARES: Final = (0.025, *(tenth / 10 for tenth in range(1, 10)), 0.975)
#: Seconds of processor time that DeepAR may train, some times what ours takes.
LONGEST: Final = 60.0
_YEAR: Final = 365
#: What pandas calls the steps of the sets; without dates, an hour does.
_PERIODS: Final = {"day": "D", "hour": "h", "30 minutes": "30min", "month": "M"}

#: By the share of probability below, [horizon].
Quantiles = Mapping[float, Floats]
#: From the data and what lies before each test window to its forecasts.
Model = Callable[[ForecastData, Sequence[Floats]], list[Quantiles]]


@dataclass(frozen=True)
class QuantileForecasts(Forecasts):
    """Given by quantiles: by share, [windows, horizon]."""

    quantiles: Quantiles

    def quantile(self, share: float) -> Floats:
        """One of those that there are."""
        return self.quantiles[min(self.quantiles, key=lambda known: abs(known - share))]

    def crps(self, truths: Floats) -> Floats:
        """Twice the pinball loss, its mean over the deciles in place of an integral."""
        losses = []
        for share in SHARES[1:-1]:
            over = truths - self.quantile(share)
            losses.append(np.maximum(share * over, (share - 1) * over))
        found: Floats = 2 * np.mean(losses, axis=0)
        return found

    def rows(self, rows: slice) -> "QuantileForecasts":
        """Those of some windows."""
        return QuantileForecasts({share: of[rows] for share, of in self.quantiles.items()})


def evaluation_of(
    model: str, path: Path, options: Mapping[str, Any], horizon: int, windows: int
) -> dict[str, Any]:
    """The scores of a model on the test windows of a file, beside those of seasonal naive."""
    data = prepare(read_series(path, **options), Wishes(horizon=horizon, test=windows))
    known = known_windows(data, data.places("test"))
    found = MODELS[model](data, [filled(past, data.layout.season) for past in known.pasts])
    quantiles = {share: np.array([of[share] for of in found]) for share in SHARES}
    return {
        "scores": score(QuantileForecasts(quantiles), known.truths).as_json(),
        "seasonal_naive": naive_scores(known, horizon, data.layout.season).as_json(),
    }


def _classical(make: Callable[[Any, Sequence[int]], Any]) -> Model:
    """A model of statsforecast, fitted to the end of each past."""

    def forecasts(data: ForecastData, pasts: Sequence[Floats]) -> list[Quantiles]:
        models = import_module("statsforecast.models")
        seasons = list(data.layout.seasons)
        if data.layout.frequency == "day":
            seasons.append(_YEAR)
        made = []
        for past in pasts:
            levels = list(LEVELS)
            model = make(models, seasons)
            found = model.forecast(y=past[-FITTED_TO:], h=data.layout.horizon, level=levels)
            made.append(_by_share(found))
        return made

    return forecasts


def _by_share(found: Mapping[str, Any]) -> Quantiles:
    """From ends of intervals."""
    quantiles = {0.5: np.asarray(found["mean"])}
    for level in LEVELS:
        tail = (1 - level / 100) / 2
        quantiles[round(tail, 3)] = np.asarray(found[f"lo-{level}"])
        quantiles[round(1 - tail, 3)] = np.asarray(found[f"hi-{level}"])
    return quantiles


def _deepar(data: ForecastData, pasts: Sequence[Floats]) -> list[Quantiles]:
    """DeepAR with the settings of GluonTS, but for the time that it may take."""
    import_module("lightning").seed_everything(1)
    stop = import_module("lightning.pytorch.callbacks").LambdaCallback
    began = time.process_time()

    def stopped_in_time(trainer: Any, *_: Any) -> None:
        trainer.should_stop = time.process_time() - began > LONGEST

    estimator = import_module("gluonts.torch").DeepAREstimator
    period = import_module("pandas").Period
    freq = _PERIODS.get(data.layout.frequency, "h")
    numbers = data.places("test").series.tolist()
    entries = []
    for number, past in zip(numbers, pasts, strict=True):
        start = data.series.series[number].start
        entries.append({"start": period("2000" if start is None else start, freq), "target": past})
    # Before the first test window of each series lies what there is to train on.
    firsts = [at for at, number in enumerate(numbers) if at == 0 or number != numbers[at - 1]]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its use of torch
        trained = estimator(
            freq=freq,
            prediction_length=data.layout.horizon,
            context_length=data.layout.context,
            trainer_kwargs={
                "callbacks": [stop(on_train_batch_end=stopped_in_time)],
                "accelerator": "cpu",
                "default_root_dir": folder,
                "enable_progress_bar": False,
            },
        ).train([entries[at] for at in firsts])
        forecasts = list(trained.predict(entries, num_samples=200))
    return [{share: np.asarray(of.quantile(share)) for share in SHARES} for of in forecasts]


MODELS: Final[dict[str, Model]] = {
    "AutoETS": _classical(lambda models, seasons: models.AutoETS(season_length=seasons[0])),
    "MSTL": _classical(lambda models, seasons: models.MSTL(season_length=seasons)),
    "DeepAR": _deepar,
}
