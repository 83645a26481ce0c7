"""Prediction with uncertainty, from several draws of a network."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar, overload

import torch
from torch import Tensor, nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.noise import draw_seed
from bayesrnn.core.predictive import predictive
from bayesrnn.core.weights import Weights
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Network
from bayesrnn.methods.trained import Trained
from bayesrnn.nn.dropout import dropout_layers, dropping, modes_restored
from bayesrnn.progress import progress_bar
from bayesrnn.random import RandomStreams
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.heads import Classes, Head, Prediction
from bayesrnn.uncertainty.kept import KeptDraws

AnyPrediction = TypeVar("AnyPrediction")
#: A network, what `fit` has made of one, or draws of one.
AnyNetwork = nn.Module | Trained | KeptDraws


@overload
def predict(
    net: AnyNetwork | Sequence[AnyNetwork],
    *inputs: Any,
    samples: int = 20,
    generator: torch.Generator | None = None,
    head: None = None,
    output: Callable[[Any], Tensor] | None = None,
    **kwargs: Any,
) -> Prediction: ...
@overload
def predict(
    net: AnyNetwork | Sequence[AnyNetwork],
    *inputs: Any,
    samples: int = 20,
    generator: torch.Generator | None = None,
    head: Head[AnyPrediction],
    output: Callable[[Any], Tensor] | None = None,
    **kwargs: Any,
) -> AnyPrediction: ...


@torch.no_grad()
def predict(
    net: AnyNetwork | Sequence[AnyNetwork],
    *inputs: Any,
    samples: int = 20,
    generator: torch.Generator | None = None,
    head: Head[Any] | None = None,
    output: Callable[[Any], Tensor] | None = None,
    **kwargs: Any,
) -> Any:
    """Run `net` on `inputs` with `samples` draws of its weights, or of what dropout drops.

    The network is a `Bayesian` or its `KeptDraws`, what `fit` returns, or any module with dropout
    layers, which are then left on (Gal & Ghahramani 2016); dropout that is a function call inside a
    module cannot be seen and is off.

    head: what the output means. `Classes()`, the default: logits of classes on the last axis, of
        which one is right; `Binary()`: one logit, of yes or no; `MultiLabel()`: a logit for each
        label; `Regression(...)`: numbers.
    output: takes that tensor from what the network returns, such as `lambda out: out["logits"]`.
        Else it is the output, or the first of several.

    Several networks, as a list, are predicted with as the mixture of their posteriors, an ensemble:
    the draws go through them in turn, so that each has as many (give or take one), and what is
    epistemic includes what the networks disagree on. A network without anything random stands for
    all of its draws; where all are such, each is run once, whatever `samples` is.

    Only the averages are stored, so memory does not grow with the number of draws (for regression:
    from 128 draws on, which quantiles are made of). Draws of a `Bayesian` come in pairs, +noise and
    -noise: each follows the posterior exactly, and the noise is made once for both. Every layer is
    left in the mode in which it was.
    """
    if not isinstance(samples, int) or samples < 1:
        raise ConfigError(f"samples is {samples}; it has to be a whole number, 1 or more")
    head = Classes() if head is None else head
    if isinstance(head, type) or not hasattr(head, "average"):
        raise ConfigError(
            f"head is {head!r}; it has to be one of br.Classes(), br.Binary(), br.MultiLabel() and "
            "br.Regression(...)"
        )
    average = head.average()
    given = [net] if isinstance(net, nn.Module | Trained | KeptDraws) else net
    nets = [_eager(each) if isinstance(each, nn.Module) else each for each in given]
    if len(nets) > 1 and not any(map(_is_random, nets)):
        samples = len(nets)
    bar = progress_bar(samples, " draws", "predicting", delay=2.0)
    with _mixture(nets, samples, generator) as networks, bar:
        for network in networks:
            found = network(*inputs, **kwargs)
            average.add(_first_output(found) if output is None else output(found))
            bar.update()
    return average.prediction()


@contextmanager
def _mixture(
    nets: Sequence[AnyNetwork], samples: int, generator: torch.Generator | None
) -> Iterator[Iterator[Network]]:
    """`samples` networks, drawn from each of `nets` in turn."""
    if not 0 < len(nets) <= samples:
        raise ConfigError(
            f"samples is {samples}, and there are {len(nets)} networks; give at least one network, "
            "and at least one draw of each"
        )
    shares = [len(range(place, samples, len(nets))) for place in range(len(nets))]
    alone = len(nets) == 1
    with ExitStack() as stack:
        pairs = zip(nets, shares, strict=True)
        drawn = [stack.enter_context(_drawn(net, share, generator, alone)) for net, share in pairs]
        yield (next(drawn[number % len(nets)]) for number in range(samples))


def _is_random(net: AnyNetwork) -> bool:
    """Whether two draws of a network may differ."""
    if isinstance(net, Trained):
        return net.method.draws_differ
    if isinstance(net, KeptDraws):
        return True
    return any(isinstance(layer, Bayesian) for layer in net.modules()) or bool(dropout_layers(net))


@contextmanager
def _drawn(
    net: AnyNetwork, samples: int, generator: torch.Generator | None, alone: bool
) -> Iterator[Iterator[Network]]:
    """`samples` networks, one after the other; equal ones only if the network is not `alone`."""
    if isinstance(net, Trained):
        # Where draws do not differ, the networks that there are stand for all of them.
        with modes_restored(net.net):
            source = torch.Generator().manual_seed(draw_seed(generator))
            draws = Draws(net.method, net.net, samples, source)
            yield itertools.islice(_again_and_again(draws), samples)
    elif isinstance(net, KeptDraws):
        with net.networks(samples) as kept:
            yield kept
    elif isinstance(net, Bayesian):
        with modes_restored(net):
            net.eval()
            yield _posterior_draws(net, samples, generator)
    elif any(isinstance(layer, Bayesian) for layer in net.modules()):
        raise ConfigError(
            f"a part of this {type(net).__name__} is a bayesrnn.Bayesian, which draws only where "
            "it is asked to; make the whole network one, Bayesian(network, deterministic=...), or "
            "predict with that part alone"
        )
    elif dropout_layers(net) or samples == 1 or not alone:
        masks = RandomStreams(draw_seed(generator))
        with dropping(net), masks.as_default("dropout"):
            yield (net for _ in range(samples))
    else:
        raise ConfigError(
            f"nothing in this {type(net).__name__} is random, so {samples} draws of it would all "
            "be the same: it is not a bayesrnn.Bayesian and has no dropout layer (nn.Dropout or "
            "its like) with a rate above 0; wrap it in Bayesian, give several networks as a list, "
            "or ask for samples=1"
        )


def _again_and_again(draws: Draws) -> Iterator[Network]:
    while True:
        yield from draws.networks()


def _posterior_draws(
    net: Bayesian, samples: int, generator: torch.Generator | None
) -> Iterator[Network]:
    weights: tuple[Weights, ...] = ()
    for number in range(samples):
        if number % 2 == 0:
            signs = (1, -1) if number + 1 < samples else (1,)
            seed = draw_seed(generator)
            weights = predictive(net, seed, signs=signs, into=weights[: len(signs)])

        def network(*args: Any, **kwargs: Any) -> Any:
            return net(*args, weights=weights[number % 2], **kwargs)  # noqa: B023

        yield network


def _eager(net: nn.Module) -> nn.Module:
    """The network that torch.compile was given: compiled code knows one draw, or one mode."""
    original = getattr(net, "_orig_mod", net)
    return original if isinstance(original, nn.Module) else net


def _first_output(output: Any) -> Tensor:
    first = output[0] if isinstance(output, tuple | list) and output else output
    if not isinstance(first, Tensor):
        raise ConfigError(
            "predict needs a network whose (first) output is a tensor of logits or numbers; it is "
            f"a {type(first).__name__}: say where the tensor is, "
            'such as output=lambda out: out["logits"]'
        )
    if not first.is_floating_point() or not first.dim() or not first.shape[-1]:
        raise ConfigError(
            f"the network's output has the shape {list(first.shape)} and holds {first.dtype}; "
            "predict needs real numbers, with at least one on the last axis"
        )
    return first
