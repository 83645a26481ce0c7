"""Forecasts of time series."""

from bayesrnn.runs.command import Command, TaskEntry

ENTRY = TaskEntry(
    "Train a recurrent network to forecast time series, with intervals.",
    {
        "forecast": Command(
            "bayesrnn.tasks.forecast.commands:forecast_series",
            "Forecast what comes after the last values of series, with intervals.",
        )
    },
)
