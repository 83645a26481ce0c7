"""The continuous ranked probability score (Matheson & Winkler 1976): E|X - y| - E|X - X'| / 2.

In the unit of y, and of a forecast without a doubt the absolute error; less is better.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def crps_of_samples(samples: Floats, truths: Floats) -> Floats:
    """Of samples [draws, ...] of X for truths [...].

    E|X - X'| is over all pairs of different samples, so it has no bias.
    """
    ordered = np.sort(samples, axis=0)
    count = len(ordered)
    away: Floats = np.abs(samples - truths[None]).mean(0)
    if count < 2:
        return away
    # In order, the k-th of n is the larger one of k - 1 pairs and the smaller one of n - k.
    weights = (2 * np.arange(count) - count + 1).reshape(-1, *[1] * truths.ndim)
    apart = (ordered * weights).sum(0) * 2 / (count * (count - 1))
    found: Floats = away - apart / 2
    return found


def crps_of_normal(mean: Floats, sd: Floats, truths: Floats) -> Floats:
    """sd (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt pi), Gneiting et al. (2005).

    The first term is computed as (y - mean) (2 Phi(z) - 1), which an sd of 0 leaves finite.
    """
    away = truths - mean
    with np.errstate(over="ignore"):  # of a forecast without a doubt
        z = away / np.maximum(sd, 1e-300)
        phi = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    erf = np.vectorize(math.erf, otypes=[float])
    found: Floats = away * erf(z / math.sqrt(2)) + sd * (2 * phi - 1 / math.sqrt(math.pi))
    return found
