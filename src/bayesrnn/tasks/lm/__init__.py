"""Language models."""

from bayesrnn.runs.command import Command, TaskEntry

_COMMANDS = "bayesrnn.tasks.lm.commands"

ENTRY = TaskEntry(
    "Train a language model, word by word.",
    {
        "tune-dynamic": Command(
            f"{_COMMANDS}:tune_dynamic_evaluation",
            "Find settings for `evaluate --dynamic` on the validation text, and keep them in the "
            "run.",
        ),
        "tune-sharpening": Command(
            f"{_COMMANDS}:tune_sharpening_settings",
            "Find settings for `evaluate --sharpen` on the validation text, and keep them in the "
            "run.",
        ),
        "generate": Command(f"{_COMMANDS}:generate_text", "Write on where a prompt ends."),
        "inspect": Command(
            f"{_COMMANDS}:inspect_run",
            "Show how probable each word of a text was, how sure the run was, and what may come "
            "next.",
        ),
    },
    {"ptb": "ptb/ptb.train.txt", "wikitext-2": "wikitext-2/wiki.train.tokens"},
)
