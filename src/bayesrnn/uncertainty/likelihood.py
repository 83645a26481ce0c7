"""Negative log-likelihood and perplexity."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Likelihood:
    """Mean negative log-likelihood per token, in nats, over `tokens` predictions."""

    nll: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(nll)."""
        return perplexity(self.nll)


def perplexity(nll: float) -> float:
    """exp(nll), infinite where that is too large for a float."""
    return math.exp(nll) if nll < 700 else math.inf
