"""How the KL divergence of an epoch is spread over its minibatches."""

from typing import Final

from bayesrnn.methods import Shares

WEIGHTINGS: Final = ("uniform", "geometric")


def kl_weight(weighting: str, number: int, count: int) -> float:
    """The share of minibatch `number` (from 0) of `count`; the shares of an epoch add up to 1.

    uniform: 1/M each. geometric: 2^(M-i) / (2^M - 1) for the i-th (Blundell et al. 2015, section
    3.4): the prior rules the first minibatches, the data the later ones.
    """
    if weighting == "uniform":
        return 1 / count
    # Divided by 2^M above and below, which for hundreds of minibatches is no number any more.
    return float(2.0 ** -(number + 1) / (1 - 2.0**-count))


def minibatch_shares(weighting: str, number: int, count: int, sequences: int) -> Shares:
    """What minibatch `number` of `count`, whose loss is the mean over `sequences`, is charged."""
    weight = kl_weight(weighting, number, count)
    return Shares(epoch=weight / sequences, minibatch=1 / sequences)
