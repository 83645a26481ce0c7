"""What `bayesrnn prune` is asked for."""

from dataclasses import dataclass
from pathlib import Path

from bayesrnn.compression.file import VALUE_TYPES
from bayesrnn.errors import ConfigError
from bayesrnn.options import CheckedOptions, option
from bayesrnn.runs.arguments import DataOptions, JsonOptions, RunOptions, html_option, seed_option


@dataclass(frozen=True, kw_only=True)
class PruneSettings(CheckedOptions):
    """What to drop, and on which text to see what it costs.

    fractions: shares of the weights to drop; 0, the full network, is measured in any case.
    """

    fractions: tuple[float, ...] = option(
        (*(tenth / 10 for tenth in range(10)), 0.95, 0.99),
        "shares of the weights to drop",
        ge=0,
        le=1,
        commas=True,
    )
    keep_quality: float | None = option(
        None,
        "also find the largest share that can be dropped while the perplexity grows by at most "
        "this: 0.01 is 1% (where no words are predicted, the inverse of the geometric mean of the "
        "probabilities of what is true)",
        ge=0,
    )
    fraction: float | None = option(
        None,
        "drop this share in what is shown and written, in place of --keep-quality",
        ge=0,
        le=1,
    )
    values: str = option(
        VALUE_TYPES[0], "of the weights in the file; float32 is exact", choices=VALUE_TYPES
    )
    fine_tune: int = option(
        0,
        "train what is left for so many epochs before it is written, by the run's own method; "
        "dropped weights stay dropped",
        ge=0,
        zero="none",
    )
    fine_tune_lr: float | None = option(
        None, "learning rate of that training (default: a tenth of the run's)", gt=0
    )
    units: bool = option(
        False,
        "drop whole units, each with all of its weights: of recurrent and hidden layers, dimensions"
        " of embeddings, words of an output matrix; the network becomes smaller and faster",
    )
    only: tuple[str, ...] = option(
        (),
        "drop weights of these matrices alone, * for anything: 'embedding*,output*'; shares are "
        "then of those; with --units the names of layers, such as recurrent_l0",
        commas=True,
    )
    per_tensor: bool = option(
        False,
        "rank the weights in each tensor by itself, not over the whole network; with --units the "
        "units of each layer, of which shares are then",
    )
    seed: int = seed_option("seed of the random order")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fraction is not None and self.keep_quality is not None:
            raise ConfigError(
                "both of --fraction and --keep-quality were given, and each says how many weights "
                "to drop; give one"
            )


@dataclass(frozen=True, kw_only=True)
class PruneOptions(PruneSettings, RunOptions, DataOptions, JsonOptions):
    """Which run to prune, and where to write what is found."""

    beside: tuple[Path, ...] = option(
        (),
        "folders of further runs of the same task, such as one of dropout that dropped weights "
        "while training: what the same shares cost them, by the order that each can be trusted in "
        "most, in the same table",
        metavar="RUN ...",
    )
    out: Path | None = option(
        None,
        "write the pruned network to this small file, which evaluate, uncertainty, predict, "
        "generate, inspect and caption take in place of a run",
        metavar="FILE",
    )
    html: Path | None = html_option("the curve and pictures of what is left")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.out is None:
            if self.values != VALUE_TYPES[0]:
                raise ConfigError(f"--values is {self.values}, but there is no --out; give a file")
            if self.fine_tune:
                raise ConfigError(
                    "--fine-tune trains what --out writes, and there is none; give a file"
                )
            return
        if self.fraction is None and self.keep_quality is None:
            raise ConfigError(
                "--out needs to know how many weights to drop; give --fraction 0.8 for four "
                "fifths, or --keep-quality 0.01 for as many as cost at most 1% in perplexity"
            )
        if str(self.out) == "-" or self.out in (self.html, self.json):
            raise ConfigError(f"--out is {self.out}; give a file of its own")
