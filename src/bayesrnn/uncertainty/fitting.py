"""The noise of draws and the temperatures that make data most probable.

A temperature is fitted for the mean weights, and one for the average over draws, together with a
factor on the noise of the draws. All draws come from the same seeds, whatever the factor, so that
the likelihood is a smooth function of it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bayesrnn.errors import RunError
from bayesrnn.methods.base import Method, Network
from bayesrnn.random import seeded
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.scaling import Scaling

#: Gives the log-probability of each truth under a network at each temperature:
#: [temperatures, predictions]. Where numbers are predicted, it is a density.
Score = Callable[[Network, Sequence[float]], Tensor]

#: Temperatures are searched between 1/8 and 8, in steps of their logarithm, of which the smallest
#: is small enough for a parabola.
_LOWEST, _HIGHEST = -math.log(8), math.log(8)
_STEP, _WIDEST = 0.05, 0.4

#: Factors on the noise that are tried first, and the ends of what is tried at all. With the factor
#: 0 a draw would be the mean, which is measured by itself, and would know of no uncertainty.
FACTORS = (0.4, 0.7, 1.0)
LEAST, MOST = 0.1, 1.5

#: Factors that a fit tries at most, the mean weights among them, and the temperatures in the end.
TRIES = len(FACTORS) + 4


@dataclass(frozen=True)
class FittedScaling:
    """What was fitted, and the mean negative log-likelihoods before and after.

    draws: how many different networks were averaged; 0 where there is only one, and no metric of
        draws.
    """

    scaling: Scaling
    draws: int
    predictions: int
    mean_nll: float
    mean_nll_fitted: float
    draws_nll: float | None = None
    draws_nll_fitted: float | None = None


@torch.no_grad()
def fit_scaling(
    method: Method[Any],
    net: nn.Module,
    score: Score,
    samples: int = 10,
    seed: int = 1,
    advance: Callable[[int], object] = lambda tries: None,
    longer: Score | None = None,
) -> FittedScaling:
    """Fit temperatures and the factor on the noise of draws to the data that `score` knows.

    advance: is called with the number of tries made, `TRIES` in all at most.
    longer: of more data, which the temperatures are fitted to in the end. All factors have the same
        seeds and the same data, so that few tell them apart; how sure a network is of data as a
        whole takes more.
    """
    draws = Draws(method, net, samples, seeded(seed))
    last = longer or score
    found = last(draws.mean(), [1.0])
    (before,), predictions = _nlls(found), found.shape[1]
    if not math.isfinite(before):
        raise RunError("the network gives no likelihood that is a number")
    mean_temperature, after = fit_temperature(lambda ts: _nlls(last(draws.mean(), ts)))
    advance(1)
    if not draws.differing(samples):
        scaling = Scaling(temperature=mean_temperature, mean_temperature=mean_temperature)
        return FittedScaling(scaling, 0, predictions, before, after)

    def log_probs_of(score: Score, noise: float, temperatures: Sequence[float]) -> Tensor:
        networks = Draws(method, net, samples, seeded(seed), Scaling(noise=noise)).networks()
        total, count = torch.tensor(-math.inf, dtype=torch.double), 0
        for network in networks:
            total = torch.logaddexp(total, score(network, temperatures).double())
            count += 1
        return total - math.log(count)

    def averaged(noise: float, temperatures: Sequence[float]) -> list[float]:
        log_probs = log_probs_of(score, noise, temperatures)
        found = _nlls(log_probs)
        known.update({(noise, t): nll for t, nll in zip(temperatures, found, strict=True)})
        best_log_probs[noise] = log_probs[found.index(min(found))]
        return found

    known: dict[tuple[float, float], float] = {}
    best_log_probs: dict[float, Tensor] = {}
    tried: dict[float, tuple[float, float]] = {}

    def nll(noise: float) -> float:
        if noise not in tried:
            # From the nearest one that is known, so that one reading is mostly enough.
            near = min(tried, key=lambda other: abs(other - noise), default=None)
            start = 1.0 if near is None else tried[near][0]
            tried[noise] = fit_temperature(lambda ts: averaged(noise, ts), start)
            advance(1)
        return tried[noise][1]

    nll(1.0)  # first of all, from a temperature of 1
    unfitted = known[1.0, 1.0]
    noise = nearest_to_one(best_log_probs, fit_noise(nll)) if method.noise_can_change else 1.0
    temperature, fitted = tried[noise]
    if longer is not None:
        (unfitted,) = _nlls(log_probs_of(longer, 1.0, [1.0]))
        temperature, fitted = fit_temperature(
            lambda ts: _nlls(log_probs_of(longer, noise, ts)), temperature
        )
        advance(1)
    scaling = Scaling(noise, temperature, mean_temperature)
    networks = draws.differing(samples)
    return FittedScaling(scaling, networks, predictions, before, after, unfitted, fitted)


def fitted_nll(log_probs: Callable[[Sequence[float]], Tensor]) -> float:
    """The lowest mean negative log-likelihood of data at any temperature.

    log_probs: of each truth at each temperature, [temperatures, predictions].
    """
    return fit_temperature(lambda temperatures: _nlls(log_probs(temperatures)))[1]


def fit_temperature(
    nlls: Callable[[list[float]], list[float]], start: float = 1.0
) -> tuple[float, float]:
    """The temperature with the lowest NLL between 1/8 and 8, and that NLL.

    `nlls` gives those of several temperatures at once. Five around the best so far are tried,
    further apart while the best is at their edge, closer after; between the last ones, a parabola
    decides.
    """
    centre, step = math.log(start), _STEP
    while True:
        places = [min(max(centre + step * k, _LOWEST), _HIGHEST) for k in (-2, -1, 0, 1, 2)]
        values = nlls([math.exp(place) for place in places])
        best = min(range(5), key=values.__getitem__)
        centre = places[best]
        at_limit = centre in (_LOWEST, _HIGHEST)
        if best in (0, 4) and not at_limit:
            step = min(2 * step, _WIDEST)
        elif step > _STEP:
            step = max(step / 2, _STEP)
        elif at_limit:
            return math.exp(centre), values[best]
        else:
            near = slice(best - 1, best + 2)
            place, value = lowest_of_parabola(places[near], values[near])
            return math.exp(place), value


def fit_noise(nll: Callable[[float], float]) -> float:
    """The factor with the lowest NLL, from coarse to fine: to about 0.05, where it is smooth."""
    tried = {factor: nll(factor) for factor in FACTORS}
    best = min(tried, key=tried.__getitem__)
    if best in (FACTORS[0], FACTORS[-1]):
        end = LEAST if best == FACTORS[0] else MOST
        tried[end] = nll(end)
        best = min(tried, key=tried.__getitem__)
    factors = sorted(tried)
    middle = min(max(factors.index(best), 1), len(factors) - 2)
    around = factors[middle - 1 : middle + 2]
    vertex, _ = lowest_of_parabola(around, [tried[factor] for factor in around])
    vertex = min(max(round(vertex, 3), LEAST), MOST)
    tried[vertex] = nll(vertex)
    return min(tried, key=tried.__getitem__)


def nearest_to_one(log_probs: Mapping[float, Tensor], best: float) -> float:
    """The factor nearest to 1 that is not worse than the best by more than chance.

    That is one standard error of the difference between their log-probabilities of the same
    predictions. Where noise makes no difference to the likelihood, it is left as it is: with less
    of it, draws would agree with each other for no reason in the data.
    """

    def is_worse(factor: float) -> bool:
        difference = log_probs[best] - log_probs[factor]
        error = difference.std() / math.sqrt(len(difference))
        return bool(difference.mean() > error)

    fitting = [factor for factor in log_probs if not is_worse(factor)]
    return min(fitting, key=lambda factor: abs(factor - 1))


def lowest_of_parabola(places: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Place and value of the lowest point of the parabola through three points.

    It may lie beside them. Where the parabola has no lowest point, it is the one in the middle.
    """
    (a, b, c), (fa, fb, fc) = places, values
    left, right = (fb - fa) / (b - a), (fc - fb) / (c - b)
    curvature = (right - left) / (c - a)
    if not curvature > 0:
        return b, fb
    # The slope at b is the mean of those left and right, each weighed by the other one's width.
    slope = (left * (c - b) + right * (b - a)) / (c - a)
    step = -slope / (2 * curvature)
    return b + step, fb + slope * step / 2


def _nlls(log_probs: Tensor) -> list[float]:
    return [-value for value in log_probs.double().mean(1).tolist()]
