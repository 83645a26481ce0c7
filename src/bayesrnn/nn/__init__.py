"""Plain deterministic networks. Nothing Bayesian."""

from bayesrnn.nn.language_model import CELLS, LanguageModel, State

__all__ = ["CELLS", "LanguageModel", "State"]
