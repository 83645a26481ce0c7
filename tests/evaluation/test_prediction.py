"""Prediction under uncertainty, against a direct computation over the same draws."""

import pytest
import torch
from torch import nn
from torch.distributions import Categorical

import bayesrnn as br
from bayesrnn.errors import ConfigError


@pytest.fixture
def net():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return br.Bayesian(nn.Linear(4, 5), sigma_init=0.8)


@pytest.fixture
def inputs():
    return torch.randn(7, 4, generator=torch.Generator().manual_seed(1))


def test_uncertainty_against_a_direct_computation(net, inputs):
    found = br.predict(net, inputs, samples=9, generator=torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(2)
    draws = [net(inputs, weights=net.sample(generator)).detach().double() for _ in range(9)]
    members = [Categorical(logits=logits) for logits in draws]
    mean = torch.stack([member.probs for member in members]).mean(0)
    torch.testing.assert_close(found.mean.double(), mean, rtol=1e-5, atol=1e-6)
    total = Categorical(probs=mean).entropy()
    aleatoric = torch.stack([member.entropy() for member in members]).mean(0)
    torch.testing.assert_close(found.total.double(), total, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.aleatoric.double(), aleatoric, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.epistemic.double(), total - aleatoric, rtol=1e-4, atol=1e-5)
    assert (found.epistemic > 0.01).any()


def test_one_draw_leaves_nothing_epistemic(net, inputs):
    found = br.predict(net, inputs, samples=1)
    assert (found.epistemic >= 0).all()
    assert found.epistemic.max() < 1e-6


def test_the_mode_of_the_network_is_left_as_it_was(net, inputs):
    for training in (True, False):
        net.train(training)
        br.predict(net, inputs, samples=2)
        assert net.training is training


def test_the_first_of_several_outputs_counts(inputs):
    net = br.Bayesian(nn.LSTM(4, 3), sigma_init=0.1)
    found = br.predict(net, inputs[:, None], samples=3)
    assert found.mean.shape == (7, 1, 3)
    torch.testing.assert_close(found.mean.sum(-1), torch.ones(7, 1))


def test_mistakes(net, inputs):
    with pytest.raises(ConfigError, match="samples is 0"):
        br.predict(net, inputs, samples=0)

    class Strange(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return {"logits": x}

    with pytest.raises(ConfigError, match="dict"):
        br.predict(br.Bayesian(Strange(), sigma_init=0.1), inputs)
