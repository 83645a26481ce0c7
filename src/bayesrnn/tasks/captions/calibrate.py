"""The calibration of a captioner on validation captions, and the verdict on it."""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from bayesrnn.data.vocabulary import EOS
from bayesrnn.methods.base import Network
from bayesrnn.random import seeded
from bayesrnn.runs.task import ValidationScore
from bayesrnn.runs.verdict import Verdict, draws_finding, word_findings
from bayesrnn.tasks.captions.batches import EncodedCaptions
from bayesrnn.tasks.captions.data import Captions
from bayesrnn.tasks.captions.trained import TrainedCaptioner
from bayesrnn.tasks.captions.words import read_captions
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.scaling import tempered_log_probs

#: Captions that are fitted to, evenly spread over the images, and images that the verdict is on.
FITTED_CAPTIONS: Final = 500
VERDICT_IMAGES: Final = 200

#: Captions read at once.
_BATCH = 128


def caption_score(run: TrainedCaptioner, data: Captions, whole: bool) -> ValidationScore:
    """How probable validation captions are, a word at a time."""
    captions = EncodedCaptions.encode(data.valid, data.vocabulary).to(run.device)
    every = 1 if whole else -(-len(captions) // FITTED_CAPTIONS)
    chosen = torch.arange(0, len(captions), every, device=run.device)
    batches = torch.split(chosen[captions.lengths[chosen].argsort(stable=True)], _BATCH)

    def score(network: Network, temperatures: Sequence[float]) -> Tensor:
        found = []
        for numbers in batches:
            batch = captions.batch(numbers)
            logits, _ = network(batch.inputs, batch.features)
            of_words = tempered_log_probs(
                logits[batch.mask], batch.targets[batch.mask], temperatures
            )
            found.append(of_words.cpu())
        return torch.cat(found, 1)

    return ValidationScore("word", score, every == 1)


def caption_verdict(run: TrainedCaptioner, data: Captions) -> Verdict | None:
    """Draws against the mean, calibration, and whether captions that run backwards are noticed."""
    calibration = run.calibrated()
    if calibration is None:
        return None
    generator = seeded(calibration.seed)
    draws = Draws(run.method, run.net, calibration.best_samples, generator, calibration.scaling)
    vocabulary = data.vocabulary
    said = [vocabulary.encode(own[0]).tolist() for own in data.valid.captions[:VERDICT_IMAGES]]
    features = data.valid.features[: len(said)].to(run.device)
    networks, eos = list(draws.networks()), vocabulary.index(EOS)
    regular = read_captions(networks, features, said, eos)
    backwards = read_captions(networks, features, [words[::-1] for words in said], eos)
    least = torch.finfo(torch.float32).tiny
    return Verdict(
        (
            draws_finding(calibration, perplexity=True),
            *word_findings(
                nll=[-metrics.probability.clamp_min(least).log() for metrics in regular],
                entropy=[metrics.entropy for metrics in regular],
                regular=torch.stack([metrics.entropy.mean() for metrics in regular]),
                shifted=torch.stack([metrics.entropy.mean() for metrics in backwards]),
                unfamiliar="a caption read backwards",
            ),
        ),
        predictions=sum(len(metrics.entropy) for metrics in regular),
        unit="word",
    )
