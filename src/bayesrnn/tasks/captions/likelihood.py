"""How probable a method finds the captions that people wrote."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from bayesrnn.methods.base import Network, Objective, Outcome
from bayesrnn.runs.held_out import Chunk
from bayesrnn.tasks.captions.batches import CaptionBatch, EncodedCaptions
from bayesrnn.uncertainty.bound import SummedMinibatch
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.likelihood import Likelihood

#: Captions read at once.
_BATCH = 128

#: Stands in place of targets that do not count.
_IGNORED = -100


def caption_nll(network: Network, batch: CaptionBatch) -> Tensor:
    """The negative log-likelihood of a minibatch's captions, summed over them, in nats."""
    logits, _ = network(batch.inputs, batch.features)
    targets = batch.targets.masked_fill(~batch.mask, _IGNORED)
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=_IGNORED
    )


class CaptionLikelihood(NamedTuple):
    """The likelihood of people's captions, all those of an image together: float64 [images].

    nll: the sum over words, in nats.
    words: how many there are, `<eos>` counted.
    """

    nll: Tensor
    words: Tensor

    def of_all(self) -> Likelihood:
        """Of a word of all images."""
        words = int(self.words.sum())
        return Likelihood(self.nll.sum().item() / words, words)


def caption_likelihood(
    draws: Draws, captions: EncodedCaptions, advance: Callable[[int], object] | None = None
) -> CaptionLikelihood:
    """The likelihood of captions averaged over draws, or of the mean network.

    Averaging is of the probabilities of words. Each draw reads all captions.
    """
    total = torch.tensor(-math.inf, dtype=torch.double)
    networks = 0
    for network in draws.networks():
        total = torch.logaddexp(total, _log_probs(network, captions, advance))
        networks += 1
    log_probs = total - math.log(networks)
    order = torch.cat(list(captions.by_length(_BATCH)))
    image_of_word = captions.images[order].repeat_interleave(captions.lengths[order]).cpu()
    images = len(captions.features)
    nll = torch.zeros(images, dtype=torch.double).index_add_(0, image_of_word, -log_probs)
    return CaptionLikelihood(nll, image_of_word.bincount(minlength=images).double())


@torch.no_grad()
def _log_probs(
    network: Network, captions: EncodedCaptions, advance: Callable[[int], object] | None
) -> Tensor:
    """The log-probability of every word, float64, caption by caption in the order of reading."""
    found = []
    for chosen in captions.by_length(_BATCH):
        batch = captions.batch(chosen)
        logits, _ = network(batch.inputs, batch.features)
        nll = F.cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), reduction="none")
        found.append(-nll.view(batch.mask.shape).mT[batch.mask.mT].double().cpu())
        if advance is not None:
            advance(len(chosen))
    return torch.cat(found)


def caption_chunks(captions: EncodedCaptions, most: int) -> list[Chunk]:
    """The predictions of captions, a minibatch at a time, until there are about `most`."""
    kept = int((captions.lengths.cumsum(0) <= most).sum())
    numbers = torch.arange(max(kept, 1), device=captions.lengths.device)
    return [_chunk(captions.batch(chosen)) for chosen in torch.split(numbers, _BATCH)]


def _chunk(batch: CaptionBatch) -> Chunk:
    def outputs(network: Network, state: Any) -> tuple[Tensor, Any]:
        logits, _ = network(batch.inputs, batch.features)
        return logits[batch.mask], state

    return Chunk(outputs, batch.targets[batch.mask])


def caption_minibatches(captions: EncodedCaptions, batch_size: int) -> Iterable[SummedMinibatch]:
    """Minibatches of captions, each with its summed loss, counted in words."""
    for chosen in captions.by_length(batch_size):
        batch = captions.batch(chosen)
        yield _summed(batch), int(batch.mask.sum())


def _summed(batch: CaptionBatch) -> Callable[[object], Objective]:
    def objective(network: Network) -> Outcome:
        return Outcome(caption_nll(network, batch), None)

    return lambda state: objective
