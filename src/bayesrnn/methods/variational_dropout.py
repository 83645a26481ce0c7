"""variational-dropout: dropout as inference in recurrent networks (Gal & Ghahramani 2016)."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bayesrnn.core.norms import total_norm
from bayesrnn.methods.base import Hints, KLScale, MinibatchLoss, Objective, not_weights
from bayesrnn.methods.masking import Masking, MaskOptions
from bayesrnn.nn.dropout import dropout_layers
from bayesrnn.nn.masked import MaskedEmbedding, MaskStyle
from bayesrnn.nn.masked_recurrent import MaskedRecurrent
from bayesrnn.options import option


@dataclass(frozen=True)
class VariationalDropoutOptions(MaskOptions):
    """Options of variational dropout."""

    length_scale: float = option(
        0.75,
        "l of the prior N(0, 1 / l^2) of the weights, hence their decay; 0 for none",
        ge=0,
        shown="length scale {}",
    )


class VariationalDropout(Masking[VariationalDropoutOptions]):
    """Drop inputs, recurrent connections, outputs and words: the same ones throughout a sequence.

    To drop an input is to set its row w of the weights to zero, so a mask is a draw of weights:
    q(w) = p N(0, s^2) + (1 - p) N(m / (1 - p), s^2) with s -> 0, held over the sequence; m is what
    is trained, the mean of w. With the prior N(0, 1 / l^2),

        KL[q || p] = (l^2 / 2) ||M||^2 / (1 - p)

    for all rows together, up to the entropy of q, which in this limit does not depend on M. (Gal's
    (l^2 / 2) (1 - p) ||M||^2 is the same with M for the rows that are kept, m / (1 - p).) A bias is
    never dropped (p = 0). So the KL is weight decay, charged once per epoch.
    """

    name: ClassVar[str] = "variational-dropout"
    summary: ClassVar[str] = "one dropout mask for a whole sequence (Gal & Ghahramani 2016)"
    options_type: ClassVar[type] = VariationalDropoutOptions

    _after_dropout: Collection[str] = ()

    def build(self, module: nn.Module, hints: Hints) -> nn.Module:
        """The module, masks in place of its dropout and on its recurrent layers."""
        self._after_dropout = hints.after_dropout
        return super().build(module, hints)

    @property
    def style(self) -> MaskStyle:
        """One mask for a sequence."""
        return MaskStyle(gates=self.options.gates)

    def loss(self, net: nn.Module, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The negative log-likelihood with one draw of masks, plus the scaled KL."""
        total, state, terms, *_ = super().loss(net, objective, kl_scale)
        full = divergence(net, self.options.length_scale, self._after_dropout)
        kl = full * kl_scale.epoch
        return MinibatchLoss(total + kl, state, {**terms, "kl": kl.item()}, prior_kl=kl)


def divergence(net: nn.Module, length_scale: float, after_dropout: Collection[str] = ()) -> Tensor:
    """KL[q || p] up to a constant: the sum of (l^2 / 2) ||M||^2 / (1 - p) over all weights.

    after_dropout: names of layers whose input comes from a dropout layer, as in `Hints`.
    """
    charged = list(_charged(net, after_dropout))
    factors = [length_scale**2 / 2 / kept for _, kept in charged]
    value: Tensor = _SquaredNorms.apply(  # type: ignore[no-untyped-call]
        factors, *(weight for weight, _ in charged)
    )
    return value


class _Charged(NamedTuple):
    """Weights that have a prior, and the share 1 - p of their inputs that is not dropped."""

    weight: nn.Parameter
    kept: float


def _charged(net: nn.Module, after_dropout: Collection[str]) -> Iterator[_Charged]:
    """The trainable weights and biases of a network, tied ones once.

    What is dropped before a layer: what its own masks drop; what a dropout layer drops that stands
    right before it in an `nn.Sequential`, or anywhere if it is named; else nothing.
    """
    dropout = [layer.p for layer in dropout_layers(net) if isinstance(layer, nn.Dropout)]
    named = dict.fromkeys(map(net.get_submodule, after_dropout), max(dropout, default=0.0))
    rates = {**_rates_in_line(net), **named}
    uncharged = set(map(id, not_weights(net)))
    for name, parameter in net.named_parameters():
        path, _, leaf = name.rpartition(".")
        layer = net.get_submodule(path)
        if not parameter.requires_grad or id(parameter) in uncharged:
            continue
        if leaf.startswith("bias"):
            rate = 0.0
        elif isinstance(layer, MaskedRecurrent):
            rate = layer.input_rate if leaf.startswith("weight_ih") else layer.recurrent_rate
        elif isinstance(layer, nn.Embedding):
            rate = layer.rate if isinstance(layer, MaskedEmbedding) else 0.0
        else:
            rate = rates.get(layer, 0.0)
        yield _Charged(parameter, 1 - rate)


def _rates_in_line(net: nn.Module) -> dict[nn.Module, float]:
    """The rate at which the inputs are dropped of each layer in an `nn.Sequential`."""
    rates: dict[nn.Module, float] = {}
    for line in net.modules():
        if isinstance(line, nn.Sequential):
            rate = 0.0
            for layer in line:
                if isinstance(layer, nn.Dropout):
                    rate = layer.p
                elif any(True for _ in layer.parameters()):
                    rates[layer] = rate
                    rate = 0.0
    return rates


class _SquaredNorms(torch.autograd.Function):
    """The sum of factor * ||weight||^2, without a graph over the weights."""

    @staticmethod
    def forward(ctx: Any, factors: Sequence[float], *weights: Tensor) -> Tensor:
        """One pass over the weights."""
        ctx.factors = factors
        ctx.save_for_backward(*weights)
        named = zip(factors, weights, strict=True)
        return weights[0].new_tensor(sum(f * total_norm([w.detach()]) ** 2 for f, w in named))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        """2 * factor * weight."""
        scale = 2 * gradient.item()
        named = zip(ctx.factors, ctx.saved_tensors, strict=True)
        return None, *(weight * (scale * factor) for factor, weight in named)
