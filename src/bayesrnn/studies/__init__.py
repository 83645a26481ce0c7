"""Programs made of everything below: quickstart, bench, reproduce."""

from bayesrnn.runs.command import Command

_COMMANDS = "bayesrnn.studies.commands"

#: Commands by their words.
COMMANDS: dict[tuple[str, ...], Command] = {
    ("quickstart",): Command(
        f"{_COMMANDS}:run_quickstart",
        "Train three methods on an embedded novel and compare them, in minutes.",
    ),
    ("reproduce", "ptb"): Command(
        f"{_COMMANDS}:reproduce_penn_treebank",
        "Train and measure the models of the paper's table on Penn Treebank, beside its figures.",
    ),
    ("bench",): Command(
        f"{_COMMANDS}:run_bench",
        "Measure training speed and memory of the methods against plain training.",
    ),
}
