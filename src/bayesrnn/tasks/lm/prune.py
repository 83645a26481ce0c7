"""On which text pruned language models are measured."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from bayesrnn.data.files import SPLITS
from bayesrnn.options import CheckedOptions, option
from bayesrnn.runs.pruning.bench import Measurement
from bayesrnn.tasks.lm.data import Corpus
from bayesrnn.tasks.lm.likelihood import target_log_probs
from bayesrnn.tasks.lm.trained import TrainedLanguageModel

#: Streams side by side in the validation after an epoch.
VALIDATION_STREAMS = 20

_UNROLL = 100
_SPLITS = {"train": "training", "valid": "validation", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class TextPruneOptions(CheckedOptions):
    """What `bayesrnn prune` can be asked of language models alone."""

    split: str = option(
        "valid",
        "which part of the data; what was chosen on test says less about it",
        choices=SPLITS,
    )
    streams: int = option(
        VALIDATION_STREAMS,
        "parts of the text read side by side; 1 is exact, more are faster",
        ge=1,
    )


def text_measurement(
    run: TrainedLanguageModel, corpus: Corpus, options: TextPruneOptions
) -> Measurement:
    """The likelihood of a text of the run's corpus."""
    text: Tensor = getattr(corpus, options.split).to(run.device)

    def metrics(network: nn.Module) -> Mapping[str, float]:
        log_probs = target_log_probs(network.eval(), text, options.streams, _UNROLL)
        return {"nll": -log_probs.cpu().double().mean().item()}

    place = f"{_SPLITS[options.split]} text"
    return Measurement(place, metrics, options.split, options.streams)
