"""What every measurement of uncertainty has."""

from collections.abc import Sequence

from bayesrnn.data.files import SPLITS
from bayesrnn.errors import ConfigError


def require_common(samples: Sequence[int], split: str, bootstrap: int) -> None:
    """Refuse settings that every measurement of uncertainty has, where they cannot be meant."""
    if not samples or min(samples) < 0:
        raise ConfigError(
            f"--samples is {', '.join(map(str, samples)) or 'empty'}; give numbers of draws, 0 "
            "(the mean weights) or more"
        )
    if split not in SPLITS:
        raise ConfigError(f"--split is {split}; there are: {', '.join(SPLITS)}")
    if bootstrap < 0:
        raise ConfigError(f"--bootstrap is {bootstrap}; it has to be 0 or more")
