"""How sure networks are of each word of a caption, and what each of them would say by itself."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bayesrnn.methods.base import Network
from bayesrnn.tasks.captions.batches import CaptionBatch, EncodedCaptions
from bayesrnn.tasks.captions.search import CaptionSearch
from bayesrnn.uncertainty.average import AverageProbabilities

#: Captions read at once.
_BATCH = 128


@dataclass(frozen=True)
class CaptionWordMetrics:
    """Metrics for each word of a caption and the `<eos>` after them, float64 [words + 1].

    probability: of the word that was said, averaged over the networks.
    entropy: of the averaged prediction, in nats.
    aleatoric: the mean entropy of single networks.
    """

    probability: Tensor
    entropy: Tensor
    aleatoric: Tensor

    @property
    def epistemic(self) -> Tensor:
        """The mutual information between word and weights; 0 with one network."""
        return self.entropy - self.aleatoric

    @property
    def log_prob(self) -> float:
        """The log-probability of the whole caption, in nats."""
        # The smallest normal number: a word that rounding ruled out keeps the sum finite.
        floor = torch.finfo(torch.float32).tiny
        return self.probability.clamp_min(floor).log().sum().item()

    @property
    def confidence(self) -> float:
        """The mean log-probability of a word, `<eos>` counted."""
        return self.log_prob / len(self.probability)


@torch.no_grad()
def read_captions(
    networks: Sequence[Network],
    features: Tensor,
    captions: Sequence[Sequence[int]],
    eos: int,
    advance: Callable[[int], object] | None = None,
) -> list[CaptionWordMetrics]:
    """Let all networks read captions that are given, each with the image that it is about.

    A word's probability is the mean over the networks, each of which has read the words before it.

    features: [captions, width], of the image of each caption.
    captions: numbers of words, without `<eos>`.
    eos: the number of the word that starts and ends a caption.
    advance: is called with the number of captions that all networks have read.
    """
    words = torch.tensor([number for caption in captions for number in (eos, *caption, eos)])
    lengths = [len(caption) + 1 for caption in captions]
    encoded = EncodedCaptions.laid_out(words, lengths, range(len(captions)), features)
    encoded = encoded.to(features.device)
    found: list[CaptionWordMetrics] = []
    for chosen in torch.split(torch.arange(len(captions), device=features.device), _BATCH):
        found += _read(networks, encoded.batch(chosen)) if len(chosen) else []
        if advance is not None:
            advance(len(chosen))
    return found


def each_draw_says(
    networks: Sequence[Network], search: CaptionSearch, features: Tensor
) -> list[Counter[tuple[int, ...]]]:
    """For each image, the captions that single networks would say, and how many say each.

    A network always takes the word that it finds likeliest.
    """
    greedy = replace(search, beam=1)
    said: list[Counter[tuple[int, ...]]] = [Counter() for _ in features]
    for network in networks:
        for own, captions in zip(said, greedy.captions([network], features), strict=True):
            own[captions[0].words] += 1
    return said


def _read(networks: Sequence[Network], batch: CaptionBatch) -> list[CaptionWordMetrics]:
    average = AverageProbabilities()
    for network in networks:
        logits, _ = network(batch.inputs, features=batch.features)
        average.add(logits)
    of_words = average.mean.gather(-1, batch.targets[..., None])[..., 0]
    # Captions as rows, so that each is one piece.
    rows = [metrics.mT.cpu().double() for metrics in (of_words, average.total(), average.aleatoric)]
    lengths = batch.mask.sum(0).tolist()
    return [
        CaptionWordMetrics(*(metrics[number, :length] for metrics in rows))
        for number, length in enumerate(lengths)
    ]
