"""Forecasts of time series."""

from bayesrnn.runs.command import TaskEntry

ENTRY = TaskEntry("Train a recurrent network to forecast time series, with intervals.")
