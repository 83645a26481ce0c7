"""Networks whose parameters have 16 bits: their KL divergence is computed with 32."""

import copy

import pytest
import torch
from torch import nn

import bayesrnn as br


class Laplace(br.Prior):
    """A prior that autograd charges."""

    @property
    def std(self):
        return 0.5

    def log_prob(self, weight, axis):
        return torch.distributions.Laplace(0.0, 0.35).log_prob(weight).sum()


PRIORS = {
    "gaussian": br.Gaussian(0.5),
    "fitted": br.FittedGaussian(),
    "fitted by row": br.FittedGaussian("row"),
    "mixture": br.ScaleMixture(),
    "laplace": Laplace(),
}


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half])
def test_the_kl_and_its_gradient_have_the_digits_of_32_bits(prior, dtype):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = br.Bayesian(nn.LSTM(64, 64), PRIORS[prior], sigma_init=0.03)
    short = net.to(dtype)
    long = copy.deepcopy(short).double()  # of the same numbers
    noise = short.noise(3)
    exact = type(noise)(
        noise.seed, tuple(eps.double() for eps in noise.tensors), noise.squares, noise.sign
    )
    weights, expected = short.sample(noise=noise), long.sample(noise=exact)
    assert weights.kl.dtype == torch.float32
    assert weights.kl.item() == pytest.approx(expected.kl.item(), rel=2e-4)
    assert all(tensor.dtype == dtype for tensor in weights.values())
    for each in (weights, expected):
        (each.kl + sum(tensor.square().sum() for tensor in each.values())).backward()
    for name, parameter in short.named_parameters():
        by, right = parameter.grad.double(), long.get_parameter(name).grad
        assert (by - right).norm() < 0.01 * right.norm()


def test_the_loss_of_a_minibatch_and_the_kl_of_sharpening_have_32_bits():
    net = br.Bayesian(nn.Linear(8, 2), sharpening=True).to(torch.bfloat16)
    x, y = torch.randn(4, 8).bfloat16(), torch.tensor([0, 1, 0, 1])
    phi = net.sample()
    nll = nn.functional.cross_entropy(net(x, weights=phi), y)
    assert nll.dtype == torch.bfloat16
    assert br.elbo(nll, phi, dataset_size=100).dtype == torch.float32
    theta = net.sharpen(phi, nll)
    assert theta.minibatch_kl.dtype == net.kl().dtype == torch.float32
