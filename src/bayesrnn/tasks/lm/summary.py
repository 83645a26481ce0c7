"""A language model in brief: its run, or the file of a pruned one."""

import hashlib
from pathlib import Path

from bayesrnn.compression.file import read_compact
from bayesrnn.errors import RunError
from bayesrnn.options import from_toml
from bayesrnn.runs.summary import RunSummary, joined, read_summary
from bayesrnn.runs.task import PERPLEXITY, finite_number
from bayesrnn.tasks.lm.task import TASK


def summarise(path: Path) -> RunSummary:
    """The run in a folder; of the file of a pruned network, what it says of itself."""
    return _of_file(path) if path.is_file() else read_summary(TASK, path)


def _of_file(path: Path) -> RunSummary:
    about = read_compact(path).about
    config_text = str(about.get("config", ""))
    config = from_toml(config_text, str(path))
    if not {"corpus", "cell", "layers", "hidden", "method"} <= config.keys():
        raise RunError(f"{path} does not say what its network is; write it again with `prune`")
    files, share = about.get("files"), finite_number(about.get("fraction"))
    words = str(files.get(TASK.problem_file)) if isinstance(files, dict) else ""
    dropped = "pruned" if share is None else f"{100 * share:.3g}% dropped"
    return RunSummary(
        path=path,
        name=path.resolve().name,
        task=TASK,
        measure=PERPLEXITY,
        data=joined(config["corpus"]),
        vocabulary=hashlib.sha256(words.encode()).hexdigest(),
        method="plain",
        network=TASK.network(config),
        epochs_planned=0,
        points=(),
        results={},
        settings=f"trained by {config['method']}, {dropped}, {about.get('values')} values",
        items_per_second=None,
        config_text=config_text,
    )
