"""What `bayesrnn search` is asked for beside the options of its trials."""

from dataclasses import dataclass
from pathlib import Path

from bayesrnn.options import CheckedOptions, option


@dataclass(frozen=True)
class SearchOptions(CheckedOptions):
    """What is searched, where, and for how long."""

    out: Path | None = option(
        None,
        "folder of the search; whoever calls the same command on it, on any machine that sees it, "
        "joins in (default: in searches/, named by the options)",
        metavar="DIR",
    )
    space: str = option(
        "paper",
        "what is searched: paper, the prior as Fortunato et al. searched it, with the learning "
        "rate and its fall; wide, every option of the method that has a range, and those two; or a "
        "TOML file",
        metavar="paper|wide|FILE",
    )
    trials: int = option(40, "trials of the search in all, by all workers", ge=1)
    pruning: bool = option(
        True,
        "stop a trial that, once its learning rate has begun to fall, is worse than the median of "
        "the others at that epoch",
    )
    lease_seconds: float = option(
        60.0,
        "after which a worker on another machine that has shown no sign of life is taken for dead, "
        "and its trial goes on here",
        ge=1,
    )
    status: bool = option(False, "only show how far the search is, and write its page")
    dry_run: bool = option(False, "only say what would be searched, and where it would begin")
