"""What a posterior has learnt, tensor by tensor: its widths, its signal, and what it costs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.posterior import Factor
from bayesrnn.core.priors import SquaresPrior, density_from

#: Edges of the histograms, as powers of 2; what lies outside is counted in the outer bins.
EDGES: Final = tuple(step / 2 for step in range(-8, 9))

#: A weight is at the prior if the data have taught it less than so many nats.
AT_PRIOR: Final = 0.1


@dataclass(frozen=True)
class Widths:
    """The standard deviations of one weight tensor against those that training began with.

    ratio: quantiles of sigma / start at 1, 50 and 99%.
    mean, sd: of log(sigma / start).
    correlation: of log sigma now and at its start; None where one is constant.
    histogram: how many weights have log2(sigma / start) between two `EDGES`.
    """

    ratio: tuple[float, float, float]
    mean: float
    sd: float
    correlation: float | None
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class TensorReport:
    """The posterior of one weight tensor, without weights that were dropped in training.

    kl: KL[q || p] in nats.
    at_prior: the share of weights whose own KL, to the prior's scale at this weight, is below
        `AT_PRIOR`; None where the prior has no scale.
    mean_correlation: of log |mu| and log sigma over the weights; None where one is constant.
    signal: how many weights have log2(|mu| / sigma) between two `EDGES`.
    widths: None where it is not known what sigma started from.
    """

    name: str
    weights: int
    kl: float
    at_prior: float | None
    mean_correlation: float | None
    signal: tuple[int, ...]
    widths: Widths | None


def tensor_reports(
    net: Bayesian, start: Mapping[str, Tensor] | None, generator: torch.Generator
) -> list[TensorReport]:
    """A report of each tensor; `start` has its standard deviations before training."""
    return [
        _report(name, factor, None if start is None else start[name])
        for name, factor in net.factors(generator).items()
    ]


def _report(name: str, factor: Factor, start: Tensor | None) -> TensorReport:
    left = _left(factor)
    loc, sigma = factor.loc[left], factor.sigma[left]
    log_loc = _numpy(loc.abs().clamp_min(torch.finfo(loc.dtype).tiny).log())
    log_sigma = _numpy(sigma.log())
    scale = prior_scale(factor)
    return TensorReport(
        name=name,
        weights=loc.numel(),
        kl=factor.kl,
        at_prior=None if scale is None else _at_prior(factor, scale)[left].mean().item(),
        mean_correlation=correlation(log_loc, log_sigma),
        signal=_histogram(log_loc - log_sigma),
        widths=None if start is None else _widths(log_sigma, _numpy(start[left].log())),
    )


def _left(factor: Factor) -> Tensor:
    """Which weights were not dropped, whose mean is 0; all of a tensor of which none is left."""
    everything = torch.ones_like(factor.loc, dtype=torch.bool)
    return factor.loc != 0 if 0 < factor.term.dropped < factor.loc.numel() else everything


def _widths(log_sigma: NDArray[np.float64], log_start: NDArray[np.float64]) -> Widths:
    change = log_sigma - log_start
    low, middle, high = np.exp(np.quantile(change, (0.01, 0.5, 0.99))).tolist()
    return Widths(
        ratio=(low, middle, high),
        mean=float(change.mean()),
        sd=float(change.std()),
        correlation=correlation(log_sigma, log_start),
        histogram=_histogram(change),
    )


def prior_scale(factor: Factor) -> Tensor | None:
    """The standard deviation of the prior as each weight meets it, to be broadcast to the weights.

    The score of a prior over groups of weights is that of a normal distribution, -weight / s^2,
    with an s of the group: of a mixture, between its two; of a fitted prior, the fitted one. Other
    priors have the standard deviation that they state, if they state one.
    """
    prior, axis = factor.term.prior, factor.term.axis
    if density_from(type(prior)) == "from_squares":
        assert isinstance(prior, SquaresPrior)
        squares = factor.loc.double().square() + factor.sigma.double().square()
        axes, weights = prior.group_axes(squares.dim(), axis), squares.numel()
        squares = squares.sum(axes, keepdim=True) if axes else squares
        _, score = prior.from_squares(squares, factor.term.sizes_for(squares, weights))
        return (-score).rsqrt()
    return None if prior.std is None else factor.loc.new_tensor(prior.std).double()


def _at_prior(factor: Factor, scale: Tensor) -> Tensor:
    """1 where a weight's own KL[N(mu, sigma^2) || N(0, scale^2)] is next to nothing, else 0."""
    loc, sigma = factor.loc.double() / scale, factor.sigma.double() / scale
    kl = (loc.square() + sigma.square() - 1) / 2 - sigma.log()
    return (kl < AT_PRIOR).double()


def correlation(values: NDArray[np.float64], others: NDArray[np.float64]) -> float | None:
    """Pearson's; None where one of the two is constant, but for rounding."""
    if min(values.std(), others.std()) < 1e-5:
        return None
    product = (values - values.mean()) * (others - others.mean())
    return float(product.mean() / (values.std() * others.std()))


@dataclass(frozen=True)
class Overall:
    """The tensors of a posterior together, each weight counting the same; None: not known.

    change: mean and standard deviation of log(sigma / start).
    """

    at_prior: float | None
    mean_correlation: float | None
    start_correlation: float | None
    change: tuple[float, float] | None


def overall(reports: Sequence[TensorReport]) -> Overall:
    """All tensors together; correlations are means of those within tensors."""
    with_start = [(one.weights, one.widths) for one in reports if one.widths is not None]
    change = None
    if with_start:
        mean = _mean([(weights, own.mean) for weights, own in with_start]) or 0.0
        squares = [(weights, own.sd**2 + (own.mean - mean) ** 2) for weights, own in with_start]
        change = mean, math.sqrt(_mean(squares) or 0.0)
    return Overall(
        at_prior=_mean([(one.weights, one.at_prior) for one in reports]),
        mean_correlation=_mean([(one.weights, one.mean_correlation) for one in reports]),
        start_correlation=_mean([(weights, own.correlation) for weights, own in with_start]),
        change=change,
    )


def _mean(weighted: Sequence[tuple[int, float | None]]) -> float | None:
    """The weighted mean of the values that are known."""
    known = [(weights, value) for weights, value in weighted if value is not None]
    total = sum(weights for weights, _ in known)
    return sum(weights * value for weights, value in known) / total if known else None


def _histogram(logarithms: NDArray[np.float64]) -> tuple[int, ...]:
    powers = np.clip(logarithms / math.log(2), EDGES[0], EDGES[-1])
    return tuple(np.histogram(powers, EDGES)[0].tolist())


def _numpy(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.flatten().double().cpu().numpy()
