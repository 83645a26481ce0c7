"""Plain deterministic networks. Nothing Bayesian.

`LSTM`, `GRU` and `RNN` are torch's layers with dropout masks that last for a whole sequence.
"""

from bayesrnn.nn import masked_recurrent

__all__ = ["GRU", "LSTM", "RNN"]

LSTM = masked_recurrent.MaskedLSTM
GRU = masked_recurrent.MaskedGRU
RNN = masked_recurrent.MaskedRNN
