"""A recurrent network whose draws can be sharpened, for the tests of posterior sharpening."""

import torch
from torch import nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.core.noise import draw_seed, normal_noise
from bayesrnn.core.priors import Gaussian
from bayesrnn.core.sharpening import Sharpening

DTYPES = [torch.float32, torch.float64]  # the compiled loops, and torch operations


def generator(seed=3):
    return torch.Generator().manual_seed(seed)


def noise_of(tensors, seed=3):
    """The noise that `sharpen(..., generator=generator(seed))` takes for weights like these."""
    like = [tensor.detach() if tensor.dim() else tensor.detach()[None] for tensor in tensors]
    noise = normal_noise(like, draw_seed(generator(seed))).tensors
    return [eps.reshape(tensor.shape) for eps, tensor in zip(noise, tensors, strict=True)]


def set_eta(net, value):
    with torch.no_grad():
        for eta in net.eta_parameters():
            eta.fill_(value)


class Model(nn.Module):
    """A recurrent network with a scale without axes, and a weight that no input reaches."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4)
        self.output = nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.tensor(1.3))
        self.unused = nn.Parameter(torch.randn(3))

    def forward(self, x):
        return self.output(self.lstm(x)[0]) * self.scale


def model(dtype=torch.float64, prior=None, sharpening=Sharpening(0.3), **options):  # noqa: B008
    module = Model().to(dtype)
    prior = Gaussian(0.7) if prior is None else prior
    net = Bayesian(module, prior, absolute(0.1, 0.3), sharpening=sharpening, **options)
    with torch.no_grad():
        for eta in net.eta_parameters():  # of either sign
            eta.copy_(0.05 * torch.randn_like(eta))
    return net


def data(dtype=torch.float64):
    return torch.randn(5, 2, 3, dtype=dtype), torch.randn(5, 2, 2, dtype=dtype)


def nll(output, target):
    return 2 * (output - target).square().sum()
