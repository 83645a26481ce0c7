"""How probable a method finds a text: negative log-likelihood and perplexity."""

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
        return math.exp(self.nll) if self.nll < 700 else math.inf
