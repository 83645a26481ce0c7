"""What is minimised as a whole: its scale, and the posterior that it finds."""

import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.priors import Gaussian, ScaleMixture


def test_three_scales_of_the_kl_are_one_objective():
    batch, time, minibatches = 3, 5, 7
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Bayesian(nn.LSTM(4, 6).double(), ScaleMixture(0.3, 0.5, 0.3), 0.1)
        x, target = torch.randn(time, batch, 4).double(), torch.randint(6, (time, batch))
    noise = net.noise(1)

    def gradients(scale_nll, scale_kl):
        net.zero_grad()
        weights = net.sample(noise=noise)
        logits, _ = net(x, weights=weights)
        nll = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
        nll = scale_nll(nll.view(time, batch))
        (nll + weights.kl * scale_kl).backward()
        return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])

    summed = gradients(torch.sum, 1 / minibatches)
    per_sequence = gradients(lambda nll: nll.sum(0).mean(), 1 / (batch * minibatches))
    per_token = gradients(torch.mean, 1 / (batch * minibatches * time))
    torch.testing.assert_close(summed, batch * per_sequence, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(summed, batch * time * per_token, rtol=1e-10, atol=1e-12)
    # The KL has a part in it that is felt.
    assert (summed - gradients(torch.sum, 0.0)).norm() > 0.05 * summed.norm()


def test_linear_regression_finds_the_analytic_posterior():
    # y = X w + noise with w ~ N(0, prior^2): the posterior is Gaussian with
    # precision X'X / noise^2 + 1 / prior^2. Of all factorised Gaussians, the closest one
    # (in KL[q || p]) has its mean, and variances 1 / diag(precision).
    # Many outputs are as many regressions on the same inputs, fitted side by side.
    count, outputs, noise_std, prior_std = 30, 100, 0.5, 0.8
    generator = torch.Generator().manual_seed(3)

    def normals(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    x = normals(count, 3)
    x[:, 1] += 0.7 * x[:, 0]
    y = x @ normals(3, outputs) - 0.4 + noise_std * normals(count, outputs)
    design = torch.cat([x, torch.ones(count, 1).double()], 1)
    precision = design.T @ design / noise_std**2 + torch.eye(4).double() / prior_std**2
    mean = torch.linalg.solve(precision, design.T @ y / noise_std**2)
    sigma = precision.diagonal().rsqrt()

    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Bayesian(nn.Linear(3, outputs).double(), Gaussian(prior_std), 0.2)
    # Plain SGD: Adam divides by the size of the gradients, which is biased where, as for sigma,
    # large ones have a sign of their own.
    rates = [{"params": net.loc.parameters(), "lr": 5e-3}, {"params": net.rho.parameters()}]
    optimiser = torch.optim.SGD(rates, lr=0.03)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.99)
    for _ in range(400):
        optimiser.zero_grad()
        weights = net.sample(generator)
        for both in (weights, net.sample(noise=weights.noise.mirrored())):
            nll = (net(x, weights=both) - y).square().sum() / (2 * noise_std**2)
            (nll + both.kl).backward()
        optimiser.step()
        schedule.step()

    module, sigmas = net.module, net.sigmas()
    found_mean = torch.cat([module.weight.detach().T, module.bias.detach()[None]])
    found_sigma = torch.cat([sigmas["weight"].T, sigmas["bias"][None]])
    assert ((found_mean - mean).abs() < 1e-6 * sigma[:, None]).all()
    torch.testing.assert_close(found_sigma.mean(1), sigma, rtol=0.02, atol=0)
    torch.testing.assert_close(found_sigma, sigma[:, None].expand(4, outputs), rtol=0.25, atol=0)
