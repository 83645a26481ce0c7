"""A task that only the tests know: the next value of a noisy wave."""

from bayesrnn.runs.command import Command, TaskEntry

ENTRY = TaskEntry(
    "Train a network to foretell a wave.",
    {"wave": Command("toy.task:show_wave", "Print the wave that the toy learns.")},
)
