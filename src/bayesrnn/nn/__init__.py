"""Plain deterministic networks. Nothing Bayesian."""

from bayesrnn.nn.captioner import Captioner
from bayesrnn.nn.dropout import dropout_layers, dropping, modes_kept, never_drop
from bayesrnn.nn.image_network import ImageNetwork, load_image_network
from bayesrnn.nn.language_model import LanguageModel
from bayesrnn.nn.masked import MaskedDropout, MaskedEmbedding, MaskedLayer, alike_masks
from bayesrnn.nn.masked_recurrent import MaskedRecurrent, masked_recurrent
from bayesrnn.nn.masks import MaskStyle
from bayesrnn.nn.mlp import MLP
from bayesrnn.nn.recurrent import CELLS, State
from bayesrnn.nn.text_reader import TextReader

__all__ = [
    "CELLS",
    "MLP",
    "Captioner",
    "ImageNetwork",
    "LanguageModel",
    "MaskStyle",
    "MaskedDropout",
    "MaskedEmbedding",
    "MaskedLayer",
    "MaskedRecurrent",
    "State",
    "TextReader",
    "alike_masks",
    "dropout_layers",
    "dropping",
    "load_image_network",
    "masked_recurrent",
    "modes_kept",
    "never_drop",
]
