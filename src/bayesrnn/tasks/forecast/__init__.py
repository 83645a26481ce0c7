"""Forecasts of time series."""

from bayesrnn.runs.command import Command, TaskEntry

ENTRY = TaskEntry(
    "Train a recurrent network to forecast time series, with intervals.",
    {
        "forecast": Command(
            "bayesrnn.tasks.forecast.commands:forecast_series",
            "Forecast what comes after the last values of series, with intervals.",
        ),
        "anomalies": Command(
            "bayesrnn.tasks.forecast.commands:show_anomalies",
            "Say which new values of series are strange, how strange, and why.",
        ),
    },
)
