"""Smaller networks: which weights matter least, and the network without them."""

from bayesrnn.compression.compact import (
    VALUES,
    Compact,
    CompactSize,
    is_compact,
    read_compact,
    write_compact,
)
from bayesrnn.compression.patterns import Pattern, matrices, patterns
from bayesrnn.compression.pruning import Pruned, dropped_weights, prune, without
from bayesrnn.compression.ranking import Ranking, at_random, magnitude, signal_to_noise
from bayesrnn.compression.sparse import (
    SparseLanguageModel,
    SparseMatrix,
    language_model_from,
    sparse_language_model,
)

__all__ = [
    "VALUES",
    "Compact",
    "CompactSize",
    "Pattern",
    "Pruned",
    "Ranking",
    "SparseLanguageModel",
    "SparseMatrix",
    "at_random",
    "dropped_weights",
    "is_compact",
    "language_model_from",
    "magnitude",
    "matrices",
    "patterns",
    "prune",
    "read_compact",
    "signal_to_noise",
    "sparse_language_model",
    "without",
    "write_compact",
]
