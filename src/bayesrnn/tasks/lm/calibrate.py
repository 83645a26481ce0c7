"""The calibration of a language model on validation text, and the verdict on it."""

from collections.abc import Sequence
from itertools import islice
from typing import Final

import torch
from torch import Tensor

from bayesrnn.data.batches import evaluation_batches
from bayesrnn.methods.base import Network
from bayesrnn.random import seeded
from bayesrnn.runs.task import ValidationScore
from bayesrnn.runs.verdict import Verdict, draws_finding, word_findings
from bayesrnn.tasks.lm.data import Corpus
from bayesrnn.tasks.lm.reading import Averaging, word_metrics
from bayesrnn.tasks.lm.shifts import reversed_text
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.uncertainty.detection import window_means
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.scaling import tempered_log_probs

#: Words of the validation text that are fitted to at most, and at its end for the verdict.
FITTED_WORDS: Final = 4000
VERDICT_WORDS: Final = 2000

#: Parts of a text that are read side by side, words of a step, and words of a window.
_STREAMS, _UNROLL, _WINDOW = 20, 50, 20
_STEPS = FITTED_WORDS // (_STREAMS * _UNROLL)


def text_score(run: TrainedLanguageModel, corpus: Corpus, whole: bool) -> ValidationScore:
    """How probable the `whole` validation text is, or the beginnings of evenly spread parts."""
    text = corpus.valid.to(run.device)
    streams = min(_STREAMS, len(text) - 1)

    def score(network: Network, temperatures: Sequence[float]) -> Tensor:
        found, state = [], None
        batches = evaluation_batches(text, streams, _UNROLL)
        for inputs, targets, mask in islice(batches, None if whole else _STEPS):
            logits, state = network(inputs, state)
            found.append(tempered_log_probs(logits[mask], targets[mask], temperatures).cpu())
        return torch.cat(found, 1)

    return ValidationScore("word", score)


def text_verdict(run: TrainedLanguageModel, corpus: Corpus) -> Verdict | None:
    """Draws against the mean, calibration, and whether text that runs backwards is noticed.

    Measured on the last words of the validation text; of a long one, few were fitted to.
    """
    calibration = run.calibrated()
    if calibration is None:
        return None
    text = corpus.valid[-VERDICT_WORDS - 1 :].to(run.device)
    samples = calibration.best_samples
    generator = seeded(calibration.seed)
    draws = Draws(run.method, run.net, samples, generator, calibration.scaling)
    averaging = Averaging(samples)
    regular, backwards = word_metrics(
        draws,
        [text, reversed_text(text)],
        [averaging],
        vocabulary=len(run.vocabulary),
        streams=min(_STREAMS, len(text) - 1),
    )[averaging]
    return Verdict(
        (
            draws_finding(calibration, perplexity=True),
            *word_findings(
                nll=regular.nll.mean().item(),
                entropy=regular.entropy.mean().item(),
                regular=_windows(regular.entropy),
                shifted=_windows(backwards.entropy),
                unfamiliar="text read backwards",
            ),
        ),
        predictions=len(regular.nll),
        unit="word",
    )


def _windows(entropy: Tensor) -> Tensor:
    return window_means(entropy, min(_WINDOW, len(entropy)))
