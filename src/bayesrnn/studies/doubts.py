"""Which words of a sentence a Bayesian run was least sure of."""

from dataclasses import dataclass

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.data.vocabulary import EOS, UNK
from bayesrnn.random import seeded
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.uncertainty.predict import predict


@dataclass(frozen=True)
class DoubtfulSentence:
    """A sentence, and the places of the words before which the model was least sure."""

    words: list[str]
    least_sure: tuple[int, ...]
    #: Entropy of the averaged prediction before each word, in nats.
    uncertainty: list[float]


def doubtful_sentences(
    trained: TrainedLanguageModel, count: int = 4, marked: int = 2, samples: int = 10, seed: int = 1
) -> list[DoubtfulSentence]:
    """Sentences of the validation text with the words that were hardest to foresee."""
    assert isinstance(trained.net, Bayesian)
    sentences = []
    for words in _sentences(trained)[:count]:
        inputs = trained.vocabulary.encode([EOS, *words[:-1]]).to(trained.device)
        generator = seeded(seed)
        found = predict(trained.net, inputs[:, None], samples=samples, generator=generator)
        uncertainty = found.total[:, 0].tolist()
        by_doubt = sorted(range(len(words)), key=lambda place: -uncertainty[place])
        sentences.append(DoubtfulSentence(words, tuple(by_doubt[:marked]), uncertainty))
    return sentences


def _sentences(trained: TrainedLanguageModel, least: int = 8, most: int = 18) -> list[list[str]]:
    """Sentences of middling length without unknown words, in order."""
    sentences: list[list[str]] = [[]]
    for word in trained.vocabulary.decode(trained.corpus().valid):
        if word == EOS:
            sentences.append([])
        else:
            sentences[-1].append(word)
    return [s for s in sentences if least <= len(s) <= most and UNK not in s]
