"""The calibration of a language model on validation text, and the verdict on it."""

from collections.abc import Sequence
from itertools import islice
from typing import Final

import torch
from torch import Tensor

from bayesrnn.data.batches import evaluation_batches
from bayesrnn.data.vocabulary import UNK
from bayesrnn.methods.base import Network
from bayesrnn.random import seeded
from bayesrnn.runs.task import ValidationScore
from bayesrnn.runs.verdict import (
    Verdict,
    draws_finding,
    unknown_words_finding,
    word_findings,
)
from bayesrnn.tasks.lm.data import Corpus
from bayesrnn.tasks.lm.reading import Averaging, spelt_surprise, word_metrics
from bayesrnn.tasks.lm.shifts import reversed_text, text_with_unknown_words
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.uncertainty.detection import window_means
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.fitting import Score
from bayesrnn.uncertainty.scaling import tempered_log_probs

#: Words of the validation text that the noise is fitted to at most, at the beginnings of evenly
#: spread parts.
FITTED_WORDS: Final = 4000

#: Parts of a text that are read side by side, words of a step, and words of a window.
_STREAMS, _UNROLL, _WINDOW = 20, 50, 20
_STEPS = FITTED_WORDS // (_STREAMS * _UNROLL)

#: What the verdict is on: the ends of this many parts, this many words each. Many short ones,
#: because stretches of 2,000 words of the Penn Treebank differ by up to 0.4 nats a word in what
#: they surprise a network by. Words before them are read only to begin with: a network that comes
#: in at the middle of a sentence is too sure of itself.
_PIECES, _PIECE, _LEAD = 80, 100, 20
#: Steps that temperatures are fitted to at most, at the beginnings of as many parts: 20,000 words.
#: How sure a network is of 4,000 words and of the text they are from differs by 0.05 nats a word.
_LONGER = 5
#: Pieces that are also read as something else, backwards or with this share of unknown words:
#: enough windows to tell them by.
_SHIFTED, _UNKNOWN = 20, 0.8


def text_score(run: TrainedLanguageModel, corpus: Corpus, whole: bool) -> ValidationScore:
    """How probable the `whole` validation text is, or the beginnings of evenly spread parts."""
    text = corpus.valid.to(run.device)

    def beginnings(streams: int, steps: int | None) -> Score:
        def score(network: Network, temperatures: Sequence[float]) -> Tensor:
            found, state = [], None
            batches = evaluation_batches(text, streams, _UNROLL)
            for inputs, targets, mask in islice(batches, steps):
                logits, state = network(inputs, state)
                found.append(tempered_log_probs(logits[mask], targets[mask], temperatures).cpu())
            return torch.cat(found, 1)

        return score

    streams = min(_STREAMS, len(text) - 1)
    if whole or len(text) - 1 <= FITTED_WORDS:
        return ValidationScore("word", beginnings(streams, None), whole=True)
    # What is left of each part is for the verdict.
    steps = min(_LONGER, (len(text) // _PIECES - _LEAD - _PIECE - 1) // _UNROLL)
    longer = beginnings(_PIECES, steps) if steps * _UNROLL * _PIECES > FITTED_WORDS else None
    return ValidationScore("word", beginnings(streams, _STEPS), longer=longer)


def text_verdict(run: TrainedLanguageModel, corpus: Corpus) -> Verdict | None:
    """Draws against the mean, calibration, and whether unfamiliar text is noticed.

    That is text that runs backwards, and text of mostly unknown words. Measured on the ends of
    parts of the validation text; of a long one, none were fitted to.
    """
    calibration, vocabulary = run.calibrated(), run.vocabulary
    if calibration is None:
        return None
    pieces = _ends(corpus.valid.to(run.device))
    averaging = Averaging(calibration.best_samples)
    generator = seeded(calibration.seed)
    draws = Draws(run.method, run.net, averaging.samples, generator, calibration.scaling)

    def read(texts: Sequence[Tensor]) -> dict[str, list[Tensor]]:
        """Scores of the words of each text, but those that it begins with."""
        found = word_metrics(draws, texts, [averaging], len(vocabulary))[averaging]
        scores = {name: [getattr(own, name) for own in found] for name in ("nll", "entropy")}
        if draws.differing(averaging.samples) > 1:
            scores["mutual information"] = [own.information for own in found]
        scores["surprise"] = [
            spelt_surprise(own.nll, text[1:].cpu(), vocabulary)
            for own, text in zip(found, texts, strict=True)
        ]
        return {
            name: [of_text[min(_LEAD, len(of_text) // 2) :] for of_text in values]
            for name, values in scores.items()
        }

    regular, some = read(pieces), pieces[:: _PIECES // _SHIFTED]
    backwards = read([reversed_text(piece) for piece in some])
    findings = [
        draws_finding(calibration, perplexity=True),
        *word_findings(
            nll=regular["nll"],
            entropy=regular["entropy"],
            regular=_windows(regular["entropy"]),
            shifted=_windows(backwards["entropy"]),
            unfamiliar="text read backwards",
        ),
    ]
    if UNK in vocabulary:
        unknown, replacing = vocabulary.index(UNK), seeded(calibration.seed)
        strange = read(
            [text_with_unknown_words(piece, _UNKNOWN, unknown, replacing) for piece in some]
        )
        windows = {
            name: (_windows(values), _windows(strange[name]))
            for name, values in regular.items()
            if name != "nll"
        }
        findings.append(unknown_words_finding(windows))
    return Verdict(tuple(findings), predictions=sum(map(len, regular["nll"])), unit="word")


def _ends(text: Tensor) -> list[Tensor]:
    """The ends of evenly spread parts of a text; fewer of a short one, but none much shorter."""
    number = max(1, min(_PIECES, len(text) // (_LEAD + _PIECE + 1)))
    return [part[-_LEAD - _PIECE - 1 :] for part in text.tensor_split(number)]


def _windows(pieces: Sequence[Tensor]) -> Tensor:
    return torch.cat([window_means(piece, min(_WINDOW, len(piece))) for piece in pieces])
