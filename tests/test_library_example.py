"""A loop of one's own, on a bidirectional LSTM of two layers with packed sequences."""

import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import bayesrnn as br

LENGTHS = torch.tensor([9, 6, 2])


class Tagger(nn.Module):
    """Tags each element of sequences of different lengths."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.out = nn.Linear(16, 3)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        features, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(features)


def nll(logits, y):
    kept = torch.arange(logits.shape[1]) < LENGTHS[:, None]
    return F.cross_entropy(logits[kept], y[kept], reduction="sum")


def data(dtype=torch.float32):
    x = torch.randn(3, 9, 4, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return x, (x[..., 0] > 0).long() + (x[..., 1] > 0).long()


def make(**options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return br.Bayesian(Tagger(), deterministic=("out.bias",), **options)


def test_the_example_learns():
    net = make(prior=br.FittedGaussian())
    means = torch.optim.Adam(net.mean_parameters(), lr=0.02)
    widths = br.WidthSGD(net.rho.parameters())
    start = net.sigmas()
    generator = torch.Generator().manual_seed(0)
    x, y = data()
    before = nll(net.eval()(x, LENGTHS), y).item()
    net.train()
    for _ in range(60):
        weights = net.sample(generator)
        # In full, the KL of two thousand weights is more than so few tags can pay for.
        loss = nll(net(x, LENGTHS, weights=weights), y) + 0.1 * weights.kl / 100
        loss.backward()
        for opt in (means, widths):
            opt.step()
            opt.zero_grad()
    assert nll(net.eval()(x, LENGTHS), y).item() < before / 4
    changes = [(sigma / start[name]).log().flatten() for name, sigma in net.sigmas().items()]
    assert torch.cat(changes).std() > 0.02, "each weight has a width of its own"
    prediction = br.predict(net, x, LENGTHS, samples=20, generator=generator)
    assert prediction.mean.shape == (3, 9, 3)
    assert (prediction.epistemic >= 0).all()


def test_its_gradients_are_right():
    net = make(prior=br.ScaleMixture(0.3, 0.6, 0.2, per="weight"), sigma_init=0.1).double()
    x, y = data(torch.double)
    weights = net.sample(torch.Generator().manual_seed(1))
    (nll(net(x, LENGTHS, weights=weights), y) + weights.kl / 7).backward()

    # The same by autograd, through torch.distributions and a module that holds the draw.
    twin = Tagger().double()
    loc = {n: p.detach().clone().requires_grad_() for n, p in net.module.named_parameters()}
    rho = {n: p.detach().clone().requires_grad_() for n, p in net.rho.named_parameters()}
    drawn, kl = dict(loc), torch.zeros((), dtype=torch.double)
    for (name, noise), value in zip(
        zip(net.names, weights.noise.tensors, strict=True), rho.values(), strict=True
    ):
        sigma = F.softplus(value) + 1e-5
        drawn[name] = loc[name] + sigma * noise
        parts = [
            torch.tensor(share).double().log() + Normal(0.0 * sigma, width).log_prob(drawn[name])
            for share, width in (
                (0.3, torch.tensor(0.6).double()),
                (0.7, torch.tensor(0.2).double()),
            )
        ]
        log_p = torch.logaddexp(*parts)
        kl = kl + (Normal(loc[name], sigma).log_prob(drawn[name]) - log_p).sum()
    logits = torch.func.functional_call(twin, drawn, (x, LENGTHS))
    (nll(logits, y) + kl / 7).backward()
    torch.testing.assert_close(weights.kl.detach(), kl.detach(), rtol=1e-6, atol=1e-6)
    for name, parameter in net.module.named_parameters():
        torch.testing.assert_close(parameter.grad, loc[name].grad, rtol=1e-5, atol=1e-7)
    for name, parameter in net.rho.named_parameters():
        torch.testing.assert_close(parameter.grad, rho[name].grad, rtol=1e-5, atol=1e-7)


def test_the_example_of_sharpening_learns():
    net = make(sharpening=True)
    groups = [
        {"params": net.weight_parameters()},
        {"params": net.eta_parameters(), "lr": 1e-4},
    ]
    optimiser = torch.optim.SGD(groups, lr=0.05)
    x, y = data()
    generator = torch.Generator().manual_seed(1)
    bounds = []
    for _ in range(150):
        phi = net.sample(generator)
        theta = net.sharpen(phi, nll(net(x, LENGTHS, weights=phi), y), generator=generator)
        bound = nll(net(x, LENGTHS, weights=theta), y) + theta.minibatch_kl
        (bound + theta.kl / 10_000).backward()
        optimiser.step()
        optimiser.zero_grad()
        bounds.append(bound.item())
    assert sum(bounds[-20:]) < 0.5 * sum(bounds[:20])
    assert len(net.weight_parameters()) + len(net.eta_parameters()) == len(list(net.parameters()))
