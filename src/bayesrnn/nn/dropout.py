"""Which layers drop units, and how to turn that on in evaluation mode."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from bayesrnn.nn.masked import MaskedLayer


def dropout_layers(module: nn.Module) -> list[nn.Module]:
    """The layers with a dropout rate above 0.

    Recurrent ones that drop between layers, attention that drops its weights and the layers of
    `nn.masked` are included.
    """
    return [layer for layer in module.modules() if _rate(layer) > 0]


@contextmanager
def modes_restored(module: nn.Module) -> Iterator[None]:
    """Restore the mode of every layer, training or evaluation, after the block."""
    modes = {layer: layer.training for layer in module.modules()}
    try:
        yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode


@contextmanager
def dropping(module: nn.Module) -> Iterator[None]:
    """Inside the block dropout is on and everything else is in evaluation mode.

    In training mode, batch normalisation would update its statistics. Afterwards every layer is in
    the mode in which it was.
    """
    with modes_restored(module):
        for layer in module.modules():
            # In evaluation mode torch's transformer layers take a shortcut past their dropout.
            layer.training = _rate(layer) > 0 or isinstance(layer, nn.TransformerEncoderLayer)
        yield


#: No dropout rate is raised above this: at 1 nothing would be left.
_HIGHEST_RATE = 0.95


def scaled_rate(rate: float, factor: float) -> float:
    """A dropout rate times `factor`, and at most 0.95, or the rate itself if that is higher."""
    return min(rate * factor, max(rate, _HIGHEST_RATE))


@contextmanager
def scaled_rates(module: nn.Module, factor: float) -> Iterator[None]:
    """Inside the block every dropout rate is `factor` times what it was, see `scaled_rate`."""
    before = [
        (layer, name, getattr(layer, name))
        for layer in (dropout_layers(module) if factor != 1 else ())
        for name in _RATES
        if isinstance(getattr(layer, name, None), float)
    ]
    for layer, name, rate in before:
        setattr(layer, name, scaled_rate(rate, factor))
    try:
        yield
    finally:
        for layer, name, rate in before:
            setattr(layer, name, rate)


#: The names of rates that the layers below have.
_RATES = ("p", "dropout", "word_rate", "input_rate", "recurrent_rate")


def never_drop(layer: nn.RNNBase) -> None:
    """Disable the dropout of a recurrent layer, also in training mode."""
    layer.dropout = 0.0
    if isinstance(layer, MaskedLayer):
        layer.switch_off()


def _rate(layer: nn.Module) -> float:
    if isinstance(layer, MaskedLayer):
        return layer.rate
    if isinstance(layer, nn.RNNBase):
        return layer.dropout if layer.num_layers > 1 else 0.0
    if isinstance(layer, nn.MultiheadAttention):
        return float(layer.dropout)
    return layer.p if isinstance(layer, _DropoutNd) else 0.0
