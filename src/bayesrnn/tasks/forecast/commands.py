"""The commands of the forecast task."""

from bayesrnn.runs.options import command
from bayesrnn.tasks.forecast.anomalies import AnomalyOptions, find_anomalies
from bayesrnn.tasks.forecast.forecasting import ForecastOptions, forecast_run


@command(ForecastOptions)
def forecast_series(options: ForecastOptions) -> None:
    """Forecast what comes after the last values of series, with intervals.

    For runs of `bayesrnn train forecast`: their own series, or later values and other series with
    --data; nothing is trained. The table goes to forecast.csv as well, and with a chart and the
    backtest to forecast.html, both in the folder of the run unless another is given.

    bayesrnn forecast runs/sales --horizon 14 --sum week
    """
    options.show(forecast_run(options))


@command(AnomalyOptions)
def show_anomalies(options: AnomalyOptions) -> None:
    """Say which new values of series are strange, how strange, and why.

    For runs of `bayesrnn train forecast`. Each value is judged given all before it; a flagged one
    is replaced by what was expected where it would be read again, so that it has no echo a season
    later. Windows are ranked among those of the run's own series that it was not trained on.

    bayesrnn anomalies runs/sales --data new-week.csv --html week.html
    """
    options.show(find_anomalies(options))
