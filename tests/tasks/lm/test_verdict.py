"""The verdict on language models that know, and do not know, what they have not seen."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from bayesrnn.data.vocabulary import EOS, UNK, Vocabulary
from bayesrnn.methods import METHODS
from bayesrnn.random import RandomStreams
from bayesrnn.runs.calibration import Calibration
from bayesrnn.tasks.lm.calibrate import text_verdict
from bayesrnn.uncertainty.fitting import FittedScaling
from bayesrnn.uncertainty.scaling import UNSCALED

WORDS = 50


class Bigrams(nn.Module):
    """A network that predicts from the last word alone: row i has the probabilities after i."""

    def __init__(self, probabilities):
        super().__init__()
        self.register_buffer("logits", probabilities.log())

    def forward(self, words, state=None):
        return self.logits[words], state


def verdict(after_unknown, unknown=UNK):
    """Of a network that has learnt a Markov chain of known words, each followed by one of five.

    after_unknown: the probability of <unk> after <unk>; all other words share the rest.
    """
    probabilities = torch.full((WORDS, WORDS), 1e-6)
    for word in range(2, WORDS):
        for step in range(1, 6):
            probabilities[word, 2 + (word - 2 + step) % (WORDS - 2)] = 0.2
    probabilities[:2] = (1 - after_unknown) / (WORDS - 1)
    probabilities[:2, 0] = after_unknown
    probabilities /= probabilities.sum(1, keepdim=True)
    steps = torch.randint(1, 6, (12_000,), generator=torch.Generator().manual_seed(0))
    text = 2 + steps.cumsum(0) % (WORDS - 2)
    kind = METHODS["plain"]
    fitted = FittedScaling(UNSCALED, 0, 100, 1.6, 1.6, None, None)
    run = SimpleNamespace(
        method=kind(kind.options_type(), RandomStreams(0)),
        net=Bigrams(probabilities),
        vocabulary=Vocabulary((unknown, EOS, *map(str, range(2, WORDS)))),
        device=torch.device("cpu"),
        calibrated=lambda: Calibration(step=1, samples=0, seed=1, unit="word", fitted=fitted),
    )
    return text_verdict(run, SimpleNamespace(valid=text))


def test_a_network_that_is_sure_of_unknown_words_is_told_so(tmp_path):
    found = verdict(after_unknown=0.99)
    metrics = found.as_json()["metrics"]
    assert metrics["unknown_words_auroc_by_entropy"] < 0.1
    assert metrics["unknown_words_auroc_by_surprise"] > 0.99
    said = found.text(tmp_path)
    assert "text of mostly unknown words is told from familiar by surprise: AUROC 1.00" in said
    assert said.endswith(
        "; judge texts with unknown words by surprise, not by entropy: "
        f"bayesrnn uncertainty {tmp_path} --shift FILE"
    )
    assert "\n" not in said


def test_a_network_that_doubts_after_unknown_words_needs_no_warning(tmp_path):
    found = verdict(after_unknown=1 / WORDS)
    assert found.as_json()["metrics"]["unknown_words_auroc_by_entropy"] > 0.9
    assert "judge texts" not in found.text(tmp_path)


def test_without_a_word_for_the_unknown_there_is_no_text_of_it():
    found = verdict(after_unknown=0.99, unknown="zero")
    assert not [name for name in found.as_json()["metrics"] if "unknown" in name]


@pytest.mark.parametrize("after_unknown", [0.99, 1 / WORDS])
def test_the_calibration_is_judged_on_regular_text_alone(after_unknown):
    metrics = verdict(after_unknown).as_json()["metrics"]
    assert metrics["overconfidence"] == pytest.approx(0, abs=0.03)
