"""Whether a launcher such as torchrun started this process, and as which of how many.

It does not import torch, so that the command line can ask.
"""

import os
from typing import NamedTuple

from bayesrnn.errors import ConfigError


class Launch(NamedTuple):
    """What the environment says of this process.

    rank: its number, from 0, among all processes of the run.
    size: how many there are.
    local_rank: its number among those of its machine.
    restarts: how often the launcher has started all of them again.
    name: what the launcher calls this launch; empty where it gives it no name of its own.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    restarts: int = 0
    name: str = ""

    @property
    def is_first(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0


def launched() -> Launch | None:
    """How a launcher started this process; None where none did."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    rank, size = _number("RANK"), _number("WORLD_SIZE")
    if not 0 <= rank < size:
        raise ConfigError(
            f"the environment says RANK={rank} and WORLD_SIZE={size}; a rank is from 0 to "
            "WORLD_SIZE - 1. Start the program by torchrun, or unset both"
        )
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return Launch(
        rank,
        size,
        _number("LOCAL_RANK"),
        _number("TORCHELASTIC_RESTART_COUNT"),
        "" if name == "none" else name,  # what torchrun calls a launch without a name
    )


def _number(name: str) -> int:
    value = os.environ.get(name, "0")
    try:
        return int(value)
    except ValueError:
        raise ConfigError(
            f"the environment says {name}={value}, which is no whole number; start the program by "
            "torchrun, or unset it"
        ) from None
