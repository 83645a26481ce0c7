"""Smaller networks: which weights matter least, and the network without them."""

from bayesrnn.compression.patterns import Pattern, matrices, patterns
from bayesrnn.compression.pruning import Pruned, dropped_weights, prune, without
from bayesrnn.compression.ranking import Ranking, at_random, magnitude, signal_to_noise

__all__ = [
    "Pattern",
    "Pruned",
    "Ranking",
    "at_random",
    "dropped_weights",
    "magnitude",
    "matrices",
    "patterns",
    "prune",
    "signal_to_noise",
    "without",
]
