"""Handwritten digits."""

from bayesrnn.runs.command import TaskEntry

ENTRY = TaskEntry(
    "Train a feed-forward network to tell handwritten digits apart.",
    data_sets={"mnist": "mnist/train-images-idx3-ubyte"},
)
