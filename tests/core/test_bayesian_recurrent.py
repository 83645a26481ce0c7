"""One draw is held over a whole sequence: against references unrolled by hand."""

import copy

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.priors import Gaussian, ScaleMixture

INPUT, HIDDEN = 3, 4


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def lstm_step(x, state, w_ih, w_hh, b_ih, b_hh):
    h, c = state
    i, f, g, o = (x @ w_ih.T + b_ih + h @ w_hh.T + b_hh).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(x, state, w_ih, w_hh, b_ih, b_hh):
    (h,) = state
    r_x, z_x, n_x = (x @ w_ih.T + b_ih).chunk(3, -1)
    r_h, z_h, n_h = (h @ w_hh.T + b_hh).chunk(3, -1)
    z = (z_x + z_h).sigmoid()
    n = (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
    return ((1 - z) * n + z * h,)


def rnn_step(x, state, w_ih, w_hh, b_ih, b_hh):
    (h,) = state
    return ((x @ w_ih.T + b_ih + h @ w_hh.T + b_hh).tanh(),)


CELLS = {
    "lstm": (nn.LSTM, lstm_step, 2),
    "gru": (nn.GRU, gru_step, 1),
    "rnn": (nn.RNN, rnn_step, 1),
}


def unrolled(cell, weights, sequence, layers, directions=1):
    """One sequence [time, input] through the layers, step by step, from a zero state."""
    _, step, parts = CELLS[cell]
    finals = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            suffix = f"_l{layer}" + ("_reverse" if direction else "")
            kinds = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            own = [weights[kind + suffix] for kind in kinds]
            state = tuple(torch.zeros(HIDDEN, dtype=sequence.dtype) for _ in range(parts))
            hidden = []
            for x in reversed(sequence) if direction else sequence:
                state = step(x, state, *own)
                hidden.append(state[0])
            finals.append(state[0])
            outputs.append(torch.stack(hidden[::-1] if direction else hidden))
        sequence = torch.cat(outputs, -1)
    return sequence, torch.stack(finals)


@pytest.mark.parametrize("cell", CELLS)
def test_two_layers_against_a_reference_unrolled_by_hand(cell):
    net = Bayesian(CELLS[cell][0](INPUT, HIDDEN, 2).double(), sigma_init=0.3)
    x = torch.randn(6, 2, INPUT).double()
    weights = net.sample()
    output, state = net(x, weights=weights)
    final = state[0] if cell == "lstm" else state
    for column in range(2):
        expected, expected_final = unrolled(cell, weights, x[:, column], layers=2)
        torch.testing.assert_close(output[:, column], expected)
        torch.testing.assert_close(final[:, column], expected_final)


@pytest.mark.parametrize("cell", CELLS)
def test_bidirectional_batch_first_and_packed(cell):
    kind = CELLS[cell][0]
    module = kind(INPUT, HIDDEN, 2, bidirectional=True, batch_first=True).double()
    net = Bayesian(module, Gaussian(0.5), 0.3)
    assert len(net.names) == 16
    lengths = [5, 2, 4]
    x = torch.randn(3, 5, INPUT).double()
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    weights = net.sample()
    output, state = net(packed, weights=weights)
    padded, found_lengths = pad_packed_sequence(output, batch_first=True)
    assert found_lengths.tolist() == lengths
    final = state[0] if cell == "lstm" else state
    for row, length in enumerate(lengths):
        expected, expected_final = unrolled(cell, weights, x[row, :length], 2, directions=2)
        torch.testing.assert_close(padded[row, :length], expected)
        torch.testing.assert_close(final[:, row], expected_final)


@pytest.mark.parametrize("prior", [Gaussian(0.5), ScaleMixture(0.3, 0.5, 0.3)], ids=repr)
@pytest.mark.parametrize("cell", CELLS)
def test_gradients_of_a_packed_bidirectional_network(cell, prior):
    # The plain module holds the drawn weights as its own parameters: torch's ordinary gradient.
    # What is left, from weights to means and spreads and the KL, is written out with autograd
    # through torch.distributions.
    kind = CELLS[cell][0]
    module = kind(INPUT, HIDDEN, 2, bidirectional=True, batch_first=True).double()
    net = Bayesian(module, prior, 0.3)
    packed = pack_padded_sequence(
        torch.randn(3, 5, INPUT).double(), [5, 2, 4], batch_first=True, enforce_sorted=False
    )
    target = torch.randn(len(packed.data), 2 * HIDDEN).double()
    zero = torch.zeros((), dtype=torch.float64)

    def nll(output):
        return (output.data - target).square().sum()

    weights = net.sample()
    output, _ = net(packed, weights=weights)
    (nll(output) + weights.kl / 7).backward()

    twin = copy.deepcopy(module)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            parameter.copy_(weights[name])
    twin.zero_grad()
    nll(twin(packed)[0]).backward()
    for eps, (name, parameter) in zip(weights.noise.tensors, twin.named_parameters(), strict=True):
        loc = net.module.get_parameter(name).detach().clone().requires_grad_()
        rho = net.rho.get_parameter(name).detach().clone().requires_grad_()
        q = Normal(loc, F.softplus(rho) + net.min_sigma)
        theta = q.loc + q.scale * eps
        if isinstance(prior, Gaussian):
            kl = kl_divergence(q, Normal(zero, zero + 0.5)).sum()
        else:  # all rows of a column choose together
            wide = Normal(zero, zero + 0.5).log_prob(theta).sum(0)
            narrow = Normal(zero, zero + 0.3).log_prob(theta).sum(0)
            log_p = torch.log(0.3 * wide.exp() + 0.7 * narrow.exp()).sum()
            kl = q.log_prob(theta).sum() - log_p
        ((theta * parameter.grad).sum() + kl / 7).backward()
        found = net.module.get_parameter(name).grad, net.rho.get_parameter(name).grad
        torch.testing.assert_close(found, (loc.grad, rho.grad), rtol=1e-10, atol=1e-12)


def test_the_kl_does_not_grow_with_time():
    net = Bayesian(nn.LSTM(INPUT, HIDDEN, 2).double(), Gaussian(0.5), 0.3)
    expected = sum(
        kl_divergence(Normal(parameter, 0.3), Normal(0.0, 0.5)).sum()
        for parameter in net.module.parameters()
    )
    for time in (1, 20):
        weights = net.sample()
        net(torch.randn(time, 2, INPUT).double(), weights=weights)
        torch.testing.assert_close(weights.kl, expected.detach(), rtol=1e-6, atol=0)
        net.zero_grad()
        weights.kl.backward()
        for parameter in net.module.parameters():
            torch.testing.assert_close(parameter.grad, parameter.detach() / 0.25)


def test_two_cuts_with_one_draw_are_one_sequence():
    net = Bayesian(nn.LSTM(INPUT, HIDDEN, 2).double(), sigma_init=0.3)
    x = torch.randn(7, 2, INPUT).double()
    weights = net.sample()
    whole, last = net(x, weights=weights)
    first, state = net(x[:3], weights=weights)
    second, final = net(x[3:], state, weights=weights)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(final, last)
    # A fresh draw for the second cut gives something else.
    assert not torch.allclose(net(x[3:], state)[0], second)


@pytest.mark.parametrize("cell", CELLS)
def test_after_a_draw_the_module_runs_with_its_own_weights_again(cell):
    module = CELLS[cell][0](INPUT, HIDDEN, 2)
    x = torch.randn(6, 2, INPUT)
    before = module(x)[0]
    net = Bayesian(module, sigma_init=0.3)
    (net(x)[0].sum() + net.kl()).backward()
    assert torch.equal(copy.deepcopy(net).eval()(x)[0], before)
    assert torch.equal(module(x)[0], before)
    assert torch.equal(net.eval()(x)[0], before)


@pytest.mark.parametrize("cell", CELLS)
def test_a_draw_is_not_left_in_the_modules_list_for_the_fused_kernels(cell):
    module = CELLS[cell][0](INPUT, HIDDEN, 2)
    net = Bayesian(module, sigma_init=0.3)
    (net(torch.randn(6, 2, INPUT))[0].sum() + net.kl()).backward()
    for held, parameter in zip(module._flat_weights, module.parameters(), strict=True):
        assert held is parameter


def test_without_spread_it_is_exactly_the_plain_network():
    module = nn.LSTM(INPUT, HIDDEN, 2, bidirectional=True)
    twin = copy.deepcopy(module)
    net = Bayesian(module, sigma_init=1e-30, min_sigma=0.0)
    x = torch.randn(6, 2, INPUT)
    found, expected = net(x), twin(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_projections():
    module = nn.LSTM(INPUT, HIDDEN, proj_size=2).double()  # in double: single precision warns
    net = Bayesian(module, sigma_init=0.3)
    weights = net.sample()
    twin = copy.deepcopy(module)
    with torch.no_grad():
        for name, parameter in twin.named_parameters():
            parameter.copy_(weights[name])
    x = torch.randn(6, 2, INPUT).double()
    torch.testing.assert_close(net(x, weights=weights), twin(x), rtol=0, atol=0)
