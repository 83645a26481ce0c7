"""Plain deterministic networks. Nothing Bayesian."""

from bayesrnn.nn.language_model import CELLS, LanguageModel, State
from bayesrnn.nn.mlp import MLP

__all__ = ["CELLS", "MLP", "LanguageModel", "State"]
