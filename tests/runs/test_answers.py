"""Answers and how doubtful they are, against direct computations."""

import pytest
import torch
from torch.distributions import Categorical

from bayesrnn.runs.answers import label_answers


@pytest.fixture
def members():
    """The probabilities of four draws for six examples of three labels."""
    logits = torch.randn(4, 6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    return Categorical(logits=2 * logits)


def test_scores_and_losses_of_labels(members):
    mean, aleatoric = members.probs.mean(0), members.entropy().mean(0)
    truths = torch.tensor([0, 1, 2, 0, 1, 2])
    found = label_answers(mean, aleatoric, truths, draws_differ=True)
    total = Categorical(probs=mean).entropy()
    torch.testing.assert_close(found.scores["H"], total)
    torch.testing.assert_close(found.scores["MI"], total - aleatoric)
    torch.testing.assert_close(found.scores["1-p"], 1 - mean.amax(1))
    wrong = mean.argmax(1) != truths
    assert found.loss.tolist() == wrong.double().tolist()
    assert found.metrics["error"] == pytest.approx(wrong.double().mean().item())
    assert found.metrics["NLL"] == pytest.approx(-mean[range(6), truths].log().mean().item())
    assert sum(found.reliability.count) == 6
    assert found.reliability.error == pytest.approx(found.metrics["ECE"])


def test_one_network_has_no_information(members):
    probabilities, truths = members.probs[0], torch.zeros(6, dtype=torch.long)
    found = label_answers(probabilities, members.entropy()[0], truths, draws_differ=False)
    assert list(found.scores) == ["H", "1-p"]
