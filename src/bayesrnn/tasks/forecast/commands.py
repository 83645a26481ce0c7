"""The commands of the forecast task."""

from bayesrnn.runs.options import command
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
