"""Plain deterministic networks. Nothing Bayesian."""

from bayesrnn.nn.dropout import dropout_layers, dropping, modes_kept
from bayesrnn.nn.language_model import CELLS, LanguageModel, State
from bayesrnn.nn.mlp import MLP

__all__ = ["CELLS", "MLP", "LanguageModel", "State", "dropout_layers", "dropping", "modes_kept"]
