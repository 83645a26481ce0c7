"""What outputs mean, against torch.distributions over the same draws."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Bernoulli

import bayesrnn as br
from bayesrnn.errors import ConfigError


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def inputs():
    return torch.randn(6, 4, generator=seeded(1))


def network(outputs):
    net = br.Bayesian(nn.Linear(4, outputs), sigma_init=0.8)
    with torch.no_grad():
        net.module.weight.uniform_(-0.5, 0.5, generator=seeded(2))
    return net


@torch.no_grad()
def draws(net, inputs, pairs):
    generator = seeded(3)
    for _ in range(pairs):
        weights = net.sample(generator)
        mirror = net.sample(noise=weights.noise.mirrored())
        yield from (net(inputs, weights=weights), net(inputs, weights=mirror))


@pytest.mark.parametrize("labels", [1, 3])
def test_yes_or_no(inputs, labels):
    net = network(labels)
    head = br.Binary() if labels == 1 else br.MultiLabel()
    found = br.predict(net, inputs, samples=6, generator=seeded(3), head=head)
    logits = torch.stack(list(draws(net, inputs, 3))).double()
    members = Bernoulli(logits=logits.squeeze(-1) if labels == 1 else logits)
    mean = members.probs.mean(0)
    total, aleatoric = Bernoulli(probs=mean).entropy(), members.entropy().mean(0)
    for one, expected in zip(
        (found.mean, found.total, found.aleatoric, found.epistemic),
        (mean, total, aleatoric, total - aleatoric),
        strict=True,
    ):
        assert one.shape == ((6,) if labels == 1 else (6, 3))
        torch.testing.assert_close(one.double(), expected, rtol=1e-5, atol=1e-5)
    assert found.epistemic.min() > 0.001


def test_sure_answers_stay_finite(inputs):
    def sure(x):
        return torch.full((len(x), 1), -1e4)

    class Sure(nn.Module):
        def forward(self, x):
            return sure(x)

    found = br.predict(Sure(), inputs, samples=1, head=br.Binary())
    assert found.mean.tolist() == found.total.tolist() == [0.0] * 6


def test_one_class_is_no_answer(inputs):
    with pytest.raises(ConfigError, match=r"Binary\(\).*Regression\(noise=\.\.\.\)"):
        br.predict(network(1), inputs)
    with pytest.raises(ConfigError, match="MultiLabel"):
        br.predict(network(3), inputs, head=br.Binary())
    for head in (br.Binary, "binary"):
        with pytest.raises(ConfigError, match=r"it has to be one of br\.Classes\(\)"):
            br.predict(network(1), inputs, head=head)


def test_several_classes_are_the_default(inputs):
    net = network(3)
    found = br.predict(net, inputs, generator=seeded(3))
    same = br.predict(net, inputs, generator=seeded(3), head=br.Classes())
    assert torch.equal(found.mean, same.mean)
    assert (found.total < math.log(3)).all()


def test_a_function_finds_the_tensor(inputs):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return {"logits": self.linear(x)}

    net = br.Bayesian(Named())
    found = br.predict(net, inputs, generator=seeded(3), output=lambda out: out["logits"])
    same = br.Bayesian(net.module.linear)
    same.rho.weight, same.rho.bias = net.rho.linear.weight, net.rho.linear.bias
    torch.testing.assert_close(found.mean, br.predict(same, inputs, generator=seeded(3)).mean)
    with pytest.raises(ConfigError, match=r"it is a dict.*lambda out"):
        br.predict(net, inputs)


def test_a_compiled_network_is_drawn_from(inputs):
    net = network(3)
    found = br.predict(torch.compile(net, backend="eager"), inputs, generator=seeded(3))
    assert torch.equal(found.mean, br.predict(net, inputs, generator=seeded(3)).mean)
