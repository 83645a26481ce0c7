"""How much of the KL divergence the updates of an epoch charge, with clipping on."""

import copy
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

from bayesrnn.core.init import absolute
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, Outcome
from bayesrnn.random import RandomStreams
from bayesrnn.training.loop import Trainer
from bayesrnn.training.optimisation import Schedule, make_optimiser
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.training.settings import LoopSettings

#: Small, so that the gradients are those of the start throughout the epoch.
LR = 1e-7
CLIP, SEQUENCES, COUNT = 0.01, 4, 6
SIGMA, RATE, SCALE = 0.5, 0.2, 3.0
GAUSSIAN = {"prior": "gaussian", "prior_sigma1": SIGMA}


class Minibatches:
    sequences, steps = SEQUENCES, 1

    def __len__(self):
        return COUNT

    def length(self, number):
        return 1

    def __getitem__(self, number):
        return torch.linspace(-1, 2, 3).double() * (number + 1)


class Problem:
    """The likelihood's gradient is `slope` times that of a linear network's outputs."""

    def __init__(self, slope):
        self.slope = slope

    def minibatches(self, epoch):
        return Minibatches()

    def objective(self, batch, state):
        return lambda network: Outcome(self.slope * network(batch).sum(), None)

    def loss_metrics(self, nll):
        return {"loss": nll}

    def validate(self):
        return {"nll": 0.0}


def posterior_kl(net):
    """KL[q || p] by torch.distributions."""
    total = torch.zeros((), dtype=torch.double)
    for name, sigma in ((n, net.rho.get_parameter(n)) for n in net.names):
        q = Normal(net.loc.get_parameter(name), nn.functional.softplus(sigma) + net.min_sigma)
        total = total + kl_divergence(q, Normal(0.0, SIGMA)).sum()
    return total


def decay_kl(net):
    first, _, last = net
    squares = first.weight.square().sum() + last.weight.square().sum() / (1 - RATE)
    return SCALE**2 / 2 * (squares + first.bias.square().sum() + last.bias.square().sum())


METHODS_AND_KLS = {
    "bbb": (GAUSSIAN, posterior_kl),
    "sharpened": ({**GAUSSIAN, "eta_lr": 0.0}, posterior_kl),
    "variational-dropout": ({"dropout": RATE, "length_scale": SCALE}, decay_kl),
    "ensemble": (
        {"base": "bbb", "members": 2, "side_by_side": True, **GAUSSIAN},
        lambda net: sum(posterior_kl(member) for member in net.members),
    ),
}


@pytest.fixture
def moves(tmp_path):
    """A function: what each update of an epoch adds to each parameter, over the rate."""

    def find(name, slope, weighting="geometric"):
        options, kl = METHODS_AND_KLS[name]
        kind, streams = METHODS[name], RandomStreams(1)
        method = kind(kind.options_for(options)(**options), streams)
        with streams.as_default("init"):
            module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Linear(4, 2)).double()
        net = method.build(module, Hints(sigma_init={"*": absolute(0.1)}))
        optimiser = make_optimiser("sgd", method.parameter_groups(net), LR, 0.0)
        learnt = [parameter for parameter in net.parameters() if parameter.requires_grad]
        gradients = torch.autograd.grad(kl(net), learnt, materialize_grads=True)
        places = [copy.deepcopy(learnt)]
        optimiser.register_step_post_hook(lambda *_: places.append(copy.deepcopy(learnt)))
        run = RunDirectory(tmp_path / f"{name}-{slope}-{weighting}")
        run.create()
        settings = LoopSettings(
            unit="example",
            measure="nll",
            epochs=1,
            schedule=Schedule(LR, 1, 1.0),
            clip=CLIP,
            save_minutes=60.0,
            kl_weighting=weighting,
        )
        Trainer(
            net=net,
            method=method,
            problem=Problem(slope),
            optimiser=optimiser,
            settings=settings,
            streams=streams,
            run=run,
            fingerprint="",
        ).train()
        flat = [nn.utils.parameters_to_vector(place).detach() for place in places]
        steps = [(before - after) / LR for before, after in pairwise(flat)]
        return SimpleNamespace(steps=steps, kl=nn.utils.parameters_to_vector(gradients))

    return find


@pytest.mark.parametrize("name", METHODS_AND_KLS)
def test_an_epoch_charges_the_kl_once_with_geometric_weights(moves, name):
    found = moves(name, slope=0.0)
    assert found.kl.norm() / SEQUENCES > 10 * CLIP
    torch.testing.assert_close(sum(found.steps), found.kl / SEQUENCES, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", METHODS_AND_KLS)
def test_the_gradient_of_the_likelihood_is_clipped_by_itself(moves, name):
    found = moves(name, slope=1.0)
    members = 2 if name == "ensemble" else 1  # each is clipped by itself
    for number, step in enumerate(found.steps):
        share = 2.0 ** -(number + 1) / (1 - 2.0**-COUNT) / SEQUENCES
        rest = step - share * found.kl
        assert rest.norm().item() == pytest.approx(CLIP * members**0.5, rel=1e-2)


def test_uniform_weights_are_clipped_with_the_likelihood(moves):
    found = moves("bbb", slope=1.0, weighting="uniform")
    for step in found.steps:
        assert step.norm().item() == pytest.approx(CLIP, rel=1e-3)
