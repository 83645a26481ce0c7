"""Three other libraries beside ours on the same work: the speed and memory of a training step.

    .venv/bin/python benchmarks/other_libraries.py --steps 4

measures those that are installed, each as far as it can do the work. What a library does
differently, or cannot do, is said in its note below the table.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

from bayesrnn.data.batches import TrainingBatches
from bayesrnn.studies import bench
from bayesrnn.tasks.lm.model import LanguageModel
from bayesrnn.training.optimisation import clipped_step, gradient_norms

HIDDEN, CLIP = 650, 5.0

#: From words [time, batch] and a state to logits [time, batch, vocabulary], the KL and the state.
Forward = Callable[[Tensor, Any], tuple[Tensor, Tensor, Any]]


@dataclass(frozen=True)
class Library:
    """Another library: the package it is imported as, its network, and what is different there."""

    package: str
    note: str
    make_network: Callable[[int, int], tuple[nn.Module, Forward]]

    def make_step(
        self, text: Tensor, vocabulary: int, batch: int, unroll: int, hidden: int = HIDDEN
    ) -> Callable[[], float]:
        """A function that trains one step and gives the loss, on minibatch after minibatch."""
        net, forward = self.make_network(vocabulary, hidden)
        batches = TrainingBatches(text, batch, unroll)
        optimiser = torch.optim.SGD(net.parameters(), lr=1.0)
        number, state = 0, None

        def step() -> float:
            nonlocal number, state
            inputs, targets = batches[number % len(batches)]
            logits, kl, after = forward(inputs, state)
            nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) * unroll
            loss = nll + kl / (batch * len(batches))
            loss.backward()
            clipped_step(optimiser, CLIP, gradient_norms(optimiser))
            optimiser.zero_grad()
            number, state = number + 1, tree_map_only(Tensor, Tensor.detach, after)
            return loss.item()

        return step


def _blitz(vocabulary: int, hidden: int) -> tuple[nn.Module, Forward]:
    modules = import_module("blitz.modules")
    kl_divergence = import_module("blitz.losses").kl_divergence_from_nn
    prior = {"prior_pi": 0.25, "prior_sigma_1": math.exp(-1), "prior_sigma_2": math.exp(-7)}
    embedding = modules.BayesianEmbedding(vocabulary, hidden, **prior)
    layers = nn.ModuleList(modules.BayesianLSTM(hidden, hidden, **prior) for _ in range(2))
    output = modules.BayesianLinear(hidden, vocabulary, **prior)
    net = nn.ModuleList([embedding, layers, output])

    def forward(words: Tensor, states: Any) -> tuple[Tensor, Tensor, Any]:
        features, after = embedding(words.t()), []  # batch first
        for layer, state in zip(layers, states or (None, None), strict=True):
            features, state_after = layer(features, state)
            after.append(state_after)
        return output(features.transpose(0, 1)), kl_divergence(net), after

    return net, forward


def _bayesian_torch(vocabulary: int, hidden: int) -> tuple[nn.Module, Forward]:
    library = import_module("bayesian_torch.layers")
    embedding = nn.Embedding(vocabulary, hidden)
    layers = nn.ModuleList(library.LSTMReparameterization(hidden, hidden) for _ in range(2))
    output = library.LinearReparameterization(hidden, vocabulary)

    def forward(words: Tensor, states: Any) -> tuple[Tensor, Tensor, Any]:
        features, after, kls = embedding(words.t()), [], []  # batch first
        for layer, state in zip(layers, states or (None, None), strict=True):
            features, state_at_each_step, kl = layer(features, state)
            after.append(tuple(part[:, -1] for part in state_at_each_step))
            kls.append(kl)
        logits, kl = output(features.transpose(0, 1))
        return logits, sum(kls, kl), after

    return nn.ModuleList([embedding, layers, output]), forward


def _torchbayesian(vocabulary: int, hidden: int) -> tuple[nn.Module, Forward]:
    net = import_module("torchbayesian.bnn").BayesianModule(LanguageModel(vocabulary, hidden))

    def forward(words: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        logits, after = net.module(words, state)  # net itself takes one argument only
        return logits, net.kl_divergence(), after

    return net, forward


LIBRARIES = {
    "blitz": Library(
        "blitz",
        "all weights Bayesian, one draw per minibatch, mixture prior per weight; "
        "LSTM step by step in Python, one layer at a time (stacked here)",
        _blitz,
    ),
    "bayesian-torch": Library(
        "bayesian_torch",
        "no Bayesian embedding (a plain one here), Gaussian prior; LSTM step by step in Python, "
        "one layer at a time (stacked here), new weights and another KL at each time step; its KL "
        "is a mean over weights; its gradients of the LSTM's rho use the last step's noise for all",
        _bayesian_torch,
    ),
    "torchbayesian": Library(
        "torchbayesian",
        "all weights Bayesian, one draw per minibatch in torch's own LSTM, Gaussian prior; the "
        "LSTM's weights are drawn two to four times for each one that is used",
        _torchbayesian,
    ),
}


def make_step(name: str, folder: Path) -> Callable[[], object]:
    """A function that trains one step of a library, or of a method of ours, at medium size."""
    if name not in LIBRARIES:
        return bench.make_step(name, folder)
    text = bench.random_text()
    return LIBRARIES[name].make_step(text, bench.VOCABULARY, bench.BATCH, bench.UNROLL)


def installed() -> list[str]:
    """The other libraries that are here to be measured."""
    return [name for name, library in LIBRARIES.items() if find_spec(library.package) is not None]


def main() -> None:
    """Print a table of ratios to plain training, and the notes."""
    there = installed()
    parser = argparse.ArgumentParser(description="other libraries beside ours on the same work")
    parser.add_argument("--steps", type=int, default=4, help="measured steps of our methods")
    parser.add_argument("--threads", type=int, help="processor threads")
    parser.add_argument("--methods", default="bbb", help="ours, beside plain: NAME,NAME,...")
    parser.add_argument("--libraries", default=",".join(there), help="others: NAME,NAME,...")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    given = parser.parse_args()
    libraries = [name for name in given.libraries.split(",") if name]
    missing = [name for name in libraries if name not in there]
    if missing or not libraries:
        parser.error(
            f"not installed: {', '.join(missing or LIBRARIES)}; `make test-peers` installs them in "
            "an environment of their own: .venv-peers/bin/python benchmarks/other_libraries.py"
        )
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    methods = [name for name in given.methods.split(",") if name]
    names = [*bench.method_names(methods), *libraries]
    # Minutes a step: one measured turn of another library has to do.
    result = bench.measure_training(names, make_step, given.steps, slow=libraries)
    for name in libraries:
        print(f"{name}: {LIBRARIES[name].note}")
    if given.json is not None:
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
