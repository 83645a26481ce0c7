"""What `bayesrnn prune` is asked for."""

import math
from dataclasses import dataclass

from bayesrnn.compression.file import VALUE_TYPES
from bayesrnn.data.files import SPLITS
from bayesrnn.errors import ConfigError
from bayesrnn.runs.options import number_list
from bayesrnn.tasks.lm.task import VALIDATION_STREAMS


@dataclass(frozen=True)
class PruneSettings:
    """What to drop, and on which text to see what it costs.

    fractions: shares of the weights to drop; 0, the full network, is measured in any case.
    keep_quality: how much the perplexity may grow, as a share of that of the full network.
    fraction: the share of the weights to drop in what is shown and written, if no quality says it.
    only: patterns of the names of the weights that may be dropped; all where there is none.
    per_tensor: rank the weights in each tensor by itself, not over the whole network.
    values: the type of the values in a file that is written.
    fine_tune, fine_tune_lr: epochs and learning rate of training what is left before it is written.
    """

    fractions: tuple[float, ...] = (*(tenth / 10 for tenth in range(10)), 0.95, 0.99)
    keep_quality: float | None = None
    fraction: float | None = None
    only: tuple[str, ...] = ()
    per_tensor: bool = False
    values: str = VALUE_TYPES[0]
    fine_tune: int = 0
    fine_tune_lr: float = 0.1
    split: str = "valid"
    streams: int = VALIDATION_STREAMS
    seed: int = 1

    def __post_init__(self) -> None:
        for fraction in self.fractions:
            if not 0 <= fraction <= 1:
                raise ConfigError(
                    f"--fractions has {fraction:g}; a fraction is from 0 (drop nothing) to 1 (drop "
                    "all weights)"
                )
        quality = self.keep_quality
        if quality is not None and not 0 <= quality < math.inf:
            raise ConfigError(
                f"--keep-quality is {quality:g}; it has to be 0 or more, such as 0.01 for a "
                "perplexity that grows by at most 1%"
            )
        if self.fraction is not None and not 0 <= self.fraction <= 1:
            raise ConfigError(f"--fraction is {self.fraction:g}; it has to be from 0 to 1")
        if self.fraction is not None and quality is not None:
            raise ConfigError(
                "both of --fraction and --keep-quality were given, and each says how many weights "
                "to drop; give one"
            )
        if self.fine_tune < 0:
            raise ConfigError(f"--fine-tune is {self.fine_tune}; it has to be 0 (none) or more")
        if not 0 < self.fine_tune_lr < math.inf:
            raise ConfigError(f"--fine-tune-lr is {self.fine_tune_lr:g}; it has to be above 0")
        if self.values not in VALUE_TYPES:
            raise ConfigError(f"--values is {self.values}; there are: {', '.join(VALUE_TYPES)}")
        if self.split not in SPLITS:
            raise ConfigError(f"--split is {self.split}; there are: {', '.join(SPLITS)}")
        if self.streams < 1:
            raise ConfigError(f"--streams is {self.streams}; it has to be 1 or more")


def fraction_list(text: str) -> tuple[float, ...]:
    """Fractions as the user writes them: 0,0.5,0.9."""
    advice = "numbers from 0 to 1 with commas between, such as 0,0.5,0.8,0.9"
    return number_list(text, float, "fractions", advice)
