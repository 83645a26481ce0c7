"""The loss of a minibatch: the negative evidence lower bound (ELBO), on the scale of that loss.

Over D predictions, an epoch charges the KL divergence once:

    -ELBO = sum over all predictions of nll + KL[q || p].

A minibatch of b predictions stands for b / D of that, so that its loss is

    sum(nll) + (b / D) KL,   or, divided by b,   mean(nll) + KL / D.
"""

import warnings
from collections.abc import Callable
from typing import Literal, get_args

from torch import Tensor

from bayesrnn.core.weights import Weights
from bayesrnn.errors import ConfigError

Reduction = Literal["sum", "mean"]

#: A KL this many times the likelihood leaves nothing of it in the gradient.
_DWARFED = 100.0


def elbo(
    nll: Tensor,
    weights: Weights,
    *,
    dataset_size: int,
    reduction: Reduction = "mean",
    batch_size: int | None = None,
    kl_weight: float = 1.0,
) -> Tensor:
    """The negative ELBO of a minibatch, to be minimised.

        weights = net.sample()
        nll = F.cross_entropy(net(x, weights=weights), y)              # a mean
        br.elbo(nll, weights, dataset_size=len(dataset)).backward()

    nll: the negative log-likelihood under `weights`: one number, reduced as `reduction` says, or
        one for each prediction, which is then reduced here.
    dataset_size: predictions in an epoch, counted as in `nll`: examples, or words of all sequences.
    reduction: whether `nll` is (or is to be) the minibatch's sum, or its mean.
    batch_size: predictions in this minibatch; needed where `nll` is one number, and a sum, or the
        weights are sharpened. The last minibatch of an epoch may be smaller: give its own size.
    kl_weight: below 1, a posterior colder than Bayes' rule says.
    """
    if reduction not in get_args(Reduction):
        raise ConfigError(f"reduction is {reduction!r}; it has to be 'sum' or 'mean'")
    if not dataset_size > 0:
        raise ConfigError(f"dataset_size is {dataset_size}; it has to be above 0")
    if nll.dim():
        if batch_size not in (None, nll.numel()):
            raise ConfigError(
                f"nll has {nll.numel()} numbers and batch_size is {batch_size}; leave it out"
            )
        batch_size = nll.numel()
        nll = nll.sum() if reduction == "sum" else nll.mean()
    if batch_size is None and (reduction == "sum" or weights.is_sharpened):
        what = "nll is a sum" if reduction == "sum" else "the weights are sharpened"
        raise ConfigError(
            f"{what}, and it is not known of how many predictions: give batch_size=len(x), or an "
            "nll with one number for each prediction (reduction='none' in torch's losses)"
        )
    kl = weights.kl / dataset_size
    if weights.is_sharpened and batch_size is not None:
        kl = kl + weights.minibatch_kl / batch_size
    if reduction == "sum" and batch_size is not None:
        kl = kl * batch_size
    kl = kl * kl_weight
    if kl.detach().abs() > _DWARFED * nll.detach().abs():
        warnings.warn(
            "the KL divergence is more than a hundred times the likelihood of this minibatch: the "
            "network will hardly see the data. Check that dataset_size counts what nll counts, of "
            "the whole data set; else there are too many weights for the data, and a kl_weight "
            "below 1 or a FittedGaussian prior leaves more room to learn",
            stacklevel=2,
        )
    return nll + kl


def warn_without_kl(weights: Weights, was_asked: Callable[[], bool]) -> None:
    """Warn in the backward pass through a draw of which nobody asked for the KL divergence."""

    def warn(gradient: Tensor) -> None:
        del gradient
        if not was_asked():
            warnings.warn(
                "a Bayesian network is trained without its KL divergence, so nothing keeps its "
                "posterior wide: draw with weights = net.sample(), run net(x, weights=weights) and "
                "add weights.kl / minibatches to the summed loss (br.elbo does), or add net.kl() "
                "in the same way",
                stacklevel=2,
            )

    first = next(iter(weights.values()))
    if first.requires_grad:
        first.register_hook(warn)  # type: ignore[no-untyped-call]
