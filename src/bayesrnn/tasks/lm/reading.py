"""Texts read word by word by many draws of a network, and what they expect at each word.

The texts stand side by side, each with its own recurrent state, which is carried from its first
word to its last. They are read in chunks: each draw reads a chunk, then the next draw does, so
that no more than one chunk of predictions and one set of weights is in memory. What is left of
a prediction are a few numbers a word.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bayesrnn.data.vocabulary import UNK, Vocabulary
from bayesrnn.errors import CorpusError
from bayesrnn.methods.base import Network
from bayesrnn.uncertainty.average import AverageProbabilities, entropy
from bayesrnn.uncertainty.draws import Draws

#: Probabilities held at once. A draw is made anew for each chunk, so chunks must not be small.
_CHUNK = 1 << 25


class Reading(NamedTuple):
    """What was found for the words at the places `words`, with `samples` draws averaged.

    `samples` is 0 for the mean network. `logits` are those of the latest draw alone; the axes are
    [words, texts, vocabulary].
    """

    words: slice
    samples: int
    average: AverageProbabilities
    logits: Tensor


@torch.no_grad()
def readings(
    draws: Draws,
    inputs: Tensor,
    samples: Collection[int],
    vocabulary: int,
    advance: Callable[[int], object] | None = None,
) -> Iterator[Reading]:
    """Read `inputs` [words, texts]; gives, chunk by chunk, the average after each draw.

    samples: the numbers of draws that are wanted; 0 asks for the mean network, which then comes
        first in each chunk. Where all draws are the same, only the mean network is read.
    advance: is called with the number of words that a network has read.
    """
    needed = set(map(draws.differing, samples))
    length = max(1, _CHUNK // (inputs.shape[1] * vocabulary))
    states: dict[int, Any] = {}

    def read(network: Network, number: int, average: AverageProbabilities) -> Reading:
        logits, states[number] = network(inputs[words], states.get(number))
        average.add(logits)
        if advance is not None:
            advance(logits.shape[0] * logits.shape[1])
        return Reading(words, number, average, logits)

    for start in range(0, len(inputs), length):
        words = slice(start, min(start + length, len(inputs)))
        if 0 in needed:
            yield read(draws.mean(), 0, AverageProbabilities())
        average = AverageProbabilities()
        for number in range(max(needed)):
            yield read(draws[number], number + 1, average)


@dataclass(frozen=True)
class Averaging:
    """The mean network (`samples` 0), or an average over the predictions of `samples` draws.

    temperature: what the logarithms of the averaged probabilities are divided by. A scaled average
    is one distribution, in which nothing is left of the draws: all of its entropy is aleatoric.
    """

    samples: int
    temperature: float = 1.0


@dataclass(frozen=True)
class WordMetrics:
    """Figures for each word of a text but the first: [words], in the precision of the network.

    entropy: of the averaged prediction, in nats.
    aleatoric: the mean entropy of single draws.
    nll: -log of the averaged probability of the word that came; at most 87.3, which is what the
        smallest float32 gives.
    confidence: the probability of the likeliest word.
    correct: whether that word came (bool).
    brier: squared distance between the probabilities and the corner of the word that came.
    """

    entropy: Tensor
    aleatoric: Tensor
    nll: Tensor
    confidence: Tensor
    correct: Tensor
    brier: Tensor

    @property
    def information(self) -> Tensor:
        """The mutual information between the prediction and the weights: entropy - aleatoric."""
        return self.entropy - self.aleatoric


@torch.no_grad()
def word_metrics(
    draws: Draws,
    texts: Sequence[Tensor],
    averagings: Collection[Averaging],
    vocabulary: int,
    streams: int = 1,
    advance: Callable[[int], object] | None = None,
) -> dict[Averaging, list[WordMetrics]]:
    """The metrics of each text by each averaging; one reading serves all.

    With one stream the state of a text is carried from zero through the whole of it. More are
    faster; each starts from a zero state.
    """
    inputs, targets, lengths = side_by_side(texts, streams)
    found: dict[Averaging, dict[str, Tensor]] = {one: {} for one in averagings}
    samples = [one.samples for one in averagings]
    for reading in readings(draws, inputs, samples, vocabulary, advance):
        for averaging, metrics in found.items():
            if draws.differing(averaging.samples) == reading.samples:
                targets_read = targets[reading.words]
                chunk = _metrics(reading.average, targets_read, averaging.temperature)
                for name, values in chunk.items():
                    if name not in metrics:
                        metrics[name] = values.new_empty(inputs.shape, device="cpu")
                    metrics[name][reading.words] = values
    columns = [range(first, first + streams) for first in range(0, len(lengths), streams)]
    return {
        averaging: [WordMetrics(**_of_text(metrics, lengths, of_text)) for of_text in columns]
        for averaging, metrics in found.items()
    }


def spelt_surprise(nll: Tensor, words: Tensor, vocabulary: Vocabulary) -> Tensor:
    """-log p of the words that came, [words], where an unknown word is one of many.

    A model knows <unk> as one frequent word, which it foresees well in a text full of words that it
    has never seen. Each of them is spelt out as one of V equally likely types, with V the size of
    the vocabulary, which adds log V to its -log p: words outside the vocabulary are at least as
    many as those in it.
    """
    if UNK not in vocabulary:
        return nll
    return nll + math.log(len(vocabulary)) * (words == vocabulary.index(UNK))


def _of_text(
    metrics: Mapping[str, Tensor], lengths: Sequence[int], columns: Sequence[int]
) -> dict[str, Tensor]:
    """The metrics of the text whose parts stand in these columns."""
    parts = {
        name: [values[: lengths[column], column] for column in columns]
        for name, values in metrics.items()
    }
    return {name: torch.cat(of) if len(of) > 1 else of[0] for name, of in parts.items()}


def side_by_side(texts: Sequence[Tensor], streams: int = 1) -> tuple[Tensor, Tensor, list[int]]:
    """Words, and the words that follow them, [words, texts * streams], and how many count in each.

    Each text is cut into `streams` parts, whose lengths differ by at most one; columns that end
    before the longest are padded.
    """
    for text in texts:
        require_words(len(text), streams)
    inputs = [part for text in texts for part in text[:-1].tensor_split(streams)]
    targets = [part for text in texts for part in text[1:].tensor_split(streams)]
    return pad_sequence(inputs), pad_sequence(targets), list(map(len, inputs))


def require_words(words: int, streams: int, name: str = "a text") -> None:
    """Refuse a text that is too short for this number of streams."""
    if words <= streams:
        raise CorpusError(
            f"{name} has {words} token(s), but {streams} stream(s) need at least {streams + 1}; "
            "give more text or fewer streams"
        )


def _metrics(
    average: AverageProbabilities, targets: Tensor, temperature: float
) -> dict[str, Tensor]:
    probs, total, aleatoric = average.mean, average.total(), average.aleatoric
    if temperature != 1:
        probs = scaled(probs, temperature)
        total = aleatoric = entropy(probs)
    # No float32 is smaller, and none of the draws would find a word that improbable.
    of_target = probs.gather(-1, targets[..., None])[..., 0].clamp_min(torch.finfo().tiny)
    confidence, answers = probs.max(-1)
    squares = torch.linalg.vector_norm(probs, dim=-1).square()
    return {
        "entropy": total,
        "aleatoric": aleatoric,
        "nll": -of_target.log(),
        "confidence": confidence,
        "brier": squares - 2 * of_target + 1,
        "correct": answers == targets,
    }


def scaled(probabilities: Tensor, temperature: float) -> Tensor:
    """Probabilities proportional to p ** (1 / temperature), classes on the last axis."""
    least = torch.finfo(probabilities.dtype).tiny  # as in the fit of the temperature
    return probabilities.clamp_min(least).log_().div_(temperature).softmax(-1)
