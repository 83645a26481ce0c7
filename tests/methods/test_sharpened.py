"""The sharpened method: its loss, its states, and that its bound is one."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Bounded, Hints, KLScale, Outcome
from bayesrnn.methods.bbb import BayesByBackprop
from bayesrnn.methods.sharpened import Sharpened, SharpenedOptions
from bayesrnn.methods.variational import PosteriorOptions
from bayesrnn.random import RandomStreams

HINTS = Hints(deterministic=("output.bias",), sigma_init={"*": absolute(0.1)})
KL_SCALE = KLScale(epoch=0.01, minibatch=0.5)


def make_method(seed=0, **options):
    return Sharpened(SharpenedOptions(**options), RandomStreams(seed))


@pytest.fixture
def carried(words):
    """The mean loss over the sequences from a given state, and all states that it was run from."""
    seen = []

    def make(state):
        def objective(network):
            seen.append(state)
            logits, after = network(words[:-1], state)
            per_word = F.cross_entropy(logits.flatten(0, 1), words[1:].flatten())
            return Outcome(per_word * (len(words) - 1), after)

        return objective

    make.seen = seen
    return make


def test_what_is_built(make_model):
    assert METHODS["sharpened"] is Sharpened
    net = make_method(sigma0=0.05).build(make_model(), HINTS)
    assert isinstance(net, Bayesian)
    for eta in net.eta_parameters():
        torch.testing.assert_close(eta.detach(), torch.full_like(eta, 0.05**2))
    net = make_method(eta_init=-0.3).build(make_model(), HINTS)
    assert all(bool((eta == -0.3).all()) for eta in net.eta_parameters())


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_the_terms_against_a_literal_computation(make_model, carried, weight):
    """Same draw, gradient by autograd, noise recovered from what the second pass ran with."""
    method = make_method(sigma0=0.05, sharpen_clip=0, sharpen_kl_weight=weight)
    net = method.build(make_model(), HINTS).double()
    ran = []

    def recorded(network):
        ran.append(network.keywords["weights"])
        return carried(None)(network)

    loss = method.loss(net, recorded, KL_SCALE)
    phi, theta = ran
    leaves = {name: value.detach().requires_grad_() for name, value in phi.items()}
    call = partial(torch.func.functional_call, net.module, leaves)
    summed = carried(None)(lambda *args: call(args)).nll / KL_SCALE.minibatch
    gradients = torch.autograd.grad(summed, list(leaves.values()))
    shifts = [0.05**2 * g for g in gradients]
    kl = sum((shift**2).sum() for shift in shifts).item() / (2 * 0.05**2)
    assert loss.terms["minibatch_kl"] == pytest.approx(weight * KL_SCALE.minibatch * kl, rel=1e-6)
    assert loss.seen_kl == pytest.approx(KL_SCALE.minibatch * kl, rel=1e-6)  # whatever the weight
    assert loss.terms["kl"] == pytest.approx(KL_SCALE.epoch * phi.kl.item(), rel=1e-9)
    noise = torch.cat(
        [
            ((theta[name] - phi[name] + shift) / 0.05).detach().flatten()
            for name, shift in zip(phi, shifts, strict=True)
        ]
    )
    assert abs(noise.mean()) < 5 / math.sqrt(len(noise))
    assert abs(noise.square().mean() - 1) < 5 * math.sqrt(2 / len(noise))


def test_both_passes_start_from_the_same_state_which_moves_on_once(make_model, carried, words):
    method = make_method()
    net = method.build(make_model(), HINTS)
    before = net.module(words, None)[1]
    before = tuple(part.detach() for part in before)
    weights = []

    def recorded(network):
        weights.append(network.keywords["weights"])
        return carried(before)(network)

    loss = method.loss(net, recorded, KL_SCALE)
    first, second = carried.seen
    assert first is second is before
    with torch.no_grad():
        _, once = net(words[:-1], before, weights=weights[1])
    for got, expected in zip(loss.state, once, strict=True):
        torch.testing.assert_close(got, expected)


def test_without_steps_it_is_bbb_with_noise(make_model, carried):
    """eta = 0: what the network runs with is the draw of bbb plus N(0, sigma0^2)."""
    sharpened = make_method(eta_init=0.0, sigma0=1e-8)
    bbb = BayesByBackprop(PosteriorOptions(), RandomStreams(0))
    losses = []
    for method in (sharpened, bbb):
        net = method.build(make_model(), HINTS).double()
        losses.append([method.loss(net, carried(None), KL_SCALE).terms for _ in range(4)])
    for with_steps, without in zip(*losses, strict=True):
        assert with_steps["minibatch_kl"] == 0
        assert with_steps["kl"] == without["kl"]
        assert with_steps["nll"] == pytest.approx(without["nll"], rel=1e-5)


def test_steps_have_a_group_of_their_own(make_model):
    method = make_method(eta_lr=0.25)
    net = method.build(make_model(), HINTS)
    rest, steps = method.parameter_groups(net)
    assert steps["lr_scale"] == 0.25
    assert [id(p) for p in steps["params"]] == [id(p) for p in net.eta_parameters()]
    assert "lr_scale" not in rest
    method = make_method(eta_lr=0.0)
    net = method.build(make_model(), HINTS)
    (rest,) = method.parameter_groups(net)
    assert not {id(p) for p in rest["params"]} & {id(p) for p in net.eta_parameters()}
    assert not any(p.requires_grad for p in net.eta_parameters())


def test_diagnostics(make_model):
    method = make_method(eta_init=2.0)
    net = method.build(make_model(), HINTS)
    assert method.diagnostics(net) == {"eta_rms": pytest.approx(2.0), "eta_negative_share": 0.0}
    with torch.no_grad():
        for eta in net.eta_parameters():
            eta.neg_()
    assert method.diagnostics(net)["eta_negative_share"] == 1.0


@pytest.mark.parametrize("eta", [0.05, 0.0])
def test_second_order_reaches_the_gradient(make_model, carried, eta):
    """It adds the way through g to the gradients, which is closed where no step is taken.

    Steps have none of it, for g does not depend on them.
    """
    found = []
    for second_order in (False, True):
        method = make_method(second_order=second_order, eta_init=eta, sharpen_clip=0)
        net = method.build(make_model(), HINTS).double()
        method.loss(net, carried(None), KL_SCALE).total.backward()
        found.append({name: parameter.grad for name, parameter in net.named_parameters()})
    first, second = found
    drawn = [name.removeprefix("eta.") for name in first if name.startswith("eta.")]
    assert drawn
    for name in drawn:
        assert first[f"eta.{name}"].any()
        torch.testing.assert_close(first[f"eta.{name}"], second[f"eta.{name}"])
        for part in (f"loc.{name}", f"rho.{name}"):
            assert torch.equal(first[part], second[part]) == (eta == 0), part


@pytest.mark.parametrize(
    "wrong",
    [
        {"sigma0": 0.0},
        {"eta_lr": -1.0},
        {"sharpen_clip": -1.0},
        {"sharpen_kl_weight": -1.0},
        {"eta_init": math.inf},
    ],
    ids=str,
)
def test_wrong_options_are_refused(wrong):
    name = next(iter(wrong)).replace("_", "-")
    with pytest.raises(ConfigError, match=f"--{name} is"):
        SharpenedOptions(**wrong)


class Guess(nn.Module):
    """Logits that do not depend on the input: the likelihood can be integrated on a grid."""

    def __init__(self, loc):
        super().__init__()
        self.logit = nn.Parameter(torch.tensor([loc], dtype=torch.double))

    def forward(self):
        return torch.stack([self.logit[0], torch.zeros((), dtype=torch.double)])


def exact_nll(mean, sigma0, targets):
    """-log of the integral of p(targets | theta) N(theta | mean, sigma0^2), on a fine grid."""
    grid = torch.linspace(mean - 12 * sigma0, mean + 12 * sigma0, 200_001, dtype=torch.double)
    prior = torch.distributions.Normal(mean, sigma0).log_prob(grid)
    zeros = int((targets == 0).sum())
    ones = len(targets) - zeros
    log_likelihood = zeros * F.logsigmoid(grid) + ones * F.logsigmoid(-grid)
    step = (grid[1] - grid[0]).log()
    return -(prior + log_likelihood + step).logsumexp(0).item()


def bound_of(net, method, targets, draws=200):
    def objective(network):
        logits = network().expand(len(targets), 2)
        return Outcome(F.cross_entropy(logits, targets, reduction="sum"), None)

    generator = torch.Generator().manual_seed(3)
    found = [method.bound(net, objective, generator) for _ in range(draws)]
    return torch.tensor([[bound.nll, bound.kl] for bound in found], dtype=torch.double)


@pytest.mark.parametrize("eta", [0.04, 0.01, 0.2, -0.1])
@pytest.mark.parametrize("targets", [[0, 0, 0, 1], [1, 1, 1, 1, 1, 0]], ids=["zeros", "ones"])
def test_the_bound_is_above_the_exact_likelihood(eta, targets):
    sigma0 = 0.2
    method = make_method(sigma0=sigma0, eta_init=eta)
    assert isinstance(method, Bounded)
    net = method.build(Guess(0.3), Hints(sigma_init={"*": absolute(0.1)}))
    bounds = bound_of(net, method, torch.tensor(targets)).sum(1)
    error = bounds.std() / math.sqrt(len(bounds))
    assert bounds.mean() > exact_nll(0.3, sigma0, torch.tensor(targets)) - 4 * error


def test_the_best_step_brings_the_bound_down_to_the_exact_likelihood():
    sigma0, targets = 0.2, torch.tensor([0] * 9 + [1])
    method = make_method(sigma0=sigma0)
    net = method.build(Guess(0.3), Hints(sigma_init={"*": absolute(0.1)}))
    bounds = bound_of(net, method, targets).sum(1)
    still = make_method(sigma0=sigma0, eta_init=0.0)
    fixed = still.build(Guess(0.3), Hints(sigma_init={"*": absolute(0.1)}))
    exact = exact_nll(0.3, sigma0, targets)
    unsharpened = bound_of(fixed, still, targets).sum(1).mean()
    assert bounds.mean() < unsharpened - 0.5 * (unsharpened - exact)


def exact_bound(mean, sigma0, eta, clip, targets):
    """E[NLL(theta)] + KL on a fine grid of theta ~ N(mean - eta g, sigma0^2)."""
    zeros = int((targets == 0).sum())
    ones = len(targets) - zeros
    g = len(targets) / (1 + math.exp(-mean)) - zeros
    g = math.copysign(min(abs(g), clip), g)
    centre = mean - eta * g
    grid = torch.linspace(centre - 9 * sigma0, centre + 9 * sigma0, 20_001, dtype=torch.double)
    weights = torch.distributions.Normal(centre, sigma0).log_prob(grid).softmax(0)
    nll = -(zeros * F.logsigmoid(grid) + ones * F.logsigmoid(-grid))
    return (weights * nll).sum().item() + (eta * g / sigma0) ** 2 / 2


@pytest.mark.parametrize("clip", [1000.0, 0.5])
def test_the_control_variate_changes_the_variance_and_not_the_mean(clip):
    """The mean against the exact integral; the variance against that of the loss as drawn."""
    sigma0, eta, draws = 0.2, 0.03, 500
    targets = torch.tensor([0] * 9 + [1])
    method = make_method(sigma0=sigma0, eta_init=eta, sharpen_clip=clip)
    net = method.build(Guess(0.3), Hints(sigma_init={"*": absolute(0.1)}))
    generator, found, plain = torch.Generator().manual_seed(3), [], []

    def objective(network):
        logits = network().expand(len(targets), 2)
        plain.append(F.cross_entropy(logits, targets, reduction="sum"))
        return Outcome(plain[-1], None)

    for _ in range(draws):
        found.append(method.bound(net, objective, generator))
    bounds = torch.tensor([bound.nll + bound.kl for bound in found], dtype=torch.double)
    error = bounds.std().item() / math.sqrt(draws)
    assert bounds.mean().item() == pytest.approx(
        exact_bound(0.3, sigma0, eta, clip, targets), abs=4 * error
    )
    as_drawn = torch.stack(plain[1::2]).double()
    assert bounds.var() < 0.02 * as_drawn.var()
    # What only the draw decides is the rest of the variance, and nothing but the mean is missing.
    drawn = torch.tensor([bound.drawn for bound in found], dtype=torch.double)
    torch.testing.assert_close(drawn - drawn.mean(), bounds - bounds.mean(), rtol=0, atol=1e-5)
    assert abs(drawn.mean()) < 0.2 * as_drawn.std()


class Coins(nn.Module):
    """A logit for each toss of a coin: enough weights to learn all tosses by heart."""

    def __init__(self):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(TOSSES))

    def forward(self):
        return torch.stack([self.logits, torch.zeros(TOSSES)], dim=-1)


TOSSES = 12


def test_permuted_targets_gain_nothing():
    """A fair coin: no model knows more than log 2 a toss, and no bound may say so.

    Scored on the tosses that it was sharpened on, the NLL alone falls below that; the KL pays for
    it. Sharpened on other tosses, both only lose.
    """
    method = make_method(sigma0=1.0)
    net = method.build(Coins(), Hints(sigma_init={"*": absolute(0.1)}))
    generator = torch.Generator().manual_seed(5)
    found = {"own": [], "permuted": []}
    for _ in range(300):
        tosses = torch.randint(2, (TOSSES,), generator=generator)
        others = {"own": tosses, "permuted": torch.randint(2, (TOSSES,), generator=generator)}
        for name, other in others.items():
            passes = iter([other, tosses])

            def objective(network, passes=passes):
                return Outcome(F.cross_entropy(network(), next(passes), reduction="sum"), None)

            bound = method.bound(net, objective, generator)
            found[name].append((bound.nll, bound.nll + bound.kl))
    own, permuted = (torch.tensor(found[name]).mean(0) for name in ("own", "permuted"))
    error = torch.tensor(found["own"]).std(0)[1] / math.sqrt(300)
    ignorance = TOSSES * math.log(2)
    assert own[0] < ignorance - 1  # the NLL alone claims to know how a coin falls
    assert own[1] > ignorance - 3 * error  # with its KL it does not
    assert permuted[0] > ignorance
    assert permuted[1] > own[1] + 1
