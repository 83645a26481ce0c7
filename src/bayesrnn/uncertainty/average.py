"""Predictions averaged over networks, one network after the other."""

import torch
from torch import Tensor

from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.errors import ConfigError

#: Numbers worked on at a time: few enough to stay in the cache from one operation to the next.
_BLOCK = 1 << 17


class AverageProbabilities:
    """The mean of class probabilities and of their entropies; classes are on the last axis.

    mean: [..., classes], of the probabilities.
    aleatoric: [...], of the entropies, in nats.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.mean = torch.empty(0)
        self.aleatoric = torch.empty(0)

    def add(self, logits: Tensor) -> None:
        """Add the logits of one more network."""
        logits = logits.detach()
        if logits.dtype in (torch.half, torch.bfloat16):
            logits = logits.float()
        if not self.samples:
            self.mean = logits.new_zeros(logits.shape)
            self.aleatoric = logits.new_zeros(logits.shape[:-1])
        _require_same(logits, self.mean)
        self.samples += 1
        share = 1 / self.samples
        kernel = kernel_for((logits, self.mean, self.aleatoric))
        if kernel is not None:
            kernel.average(logits, share, self.mean, self.aleatoric)
        else:
            _average(logits, share, self.mean, self.aleatoric)

    def total(self) -> Tensor:
        """The entropy of the mean, in nats.

        It is never below the mean of the entropies, and equal to it where all networks agree. A
        difference as small as rounding errors is taken for none.
        """
        if self.samples == 1:
            return self.aleatoric.clone()
        total = entropy(self.mean)
        rounding = 16 * torch.finfo(total.dtype).eps * total.clamp_min(1)
        return torch.where(total - self.aleatoric > rounding, total, self.aleatoric)


def _average(logits: Tensor, share: float, mean: Tensor, aleatoric: Tensor) -> None:
    """Move `mean` and `aleatoric` by `share` towards the softmax of logits and its entropy."""
    means, entropies = mean.view(-1, mean.shape[-1]), aleatoric.view(-1)
    start = 0
    for block in blocks(logits):
        part = slice(start, start := start + len(block))
        log_probs = block.log_softmax(-1)
        probs = log_probs.exp()
        means[part].lerp_(probs, share)
        entropies[part].lerp_(_entropy(probs, log_probs), share)


class RunningMoments:
    """Running mean and variance of tensors."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.empty(0)
        self._squares = torch.empty(0)

    def add(self, value: Tensor) -> None:
        """Add one more, by Welford's update: sums of squares would lose small variances."""
        if not self.count:
            self.mean, self._squares = torch.zeros_like(value), torch.zeros_like(value)
        _require_same(value, self.mean)
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self._squares += before * (value - self.mean)

    def variance(self, correction: int = 0) -> Tensor:
        """The sum of squared differences from the mean, divided by the count - `correction`."""
        return self._squares / (self.count - correction)


def _require_same(value: Tensor, mean: Tensor) -> None:
    if value.shape != mean.shape or value.dtype != mean.dtype:
        raise ConfigError(
            f"a network gave an output of shape {list(value.shape)} ({value.dtype}) after one of "
            f"{list(mean.shape)} ({mean.dtype}); to be averaged, all have to be alike"
        )


def entropy(probabilities: Tensor) -> Tensor:
    """-sum p log p over the last axis, in nats."""
    # The logarithm of the smallest number instead of that of 0, which times 0 would not be 0.
    least = torch.finfo(probabilities.dtype).tiny
    parts = [-(p * p.clamp_min(least).log()).sum(-1) for p in blocks(probabilities)]
    return torch.cat(parts).view(probabilities.shape[:-1])


def _entropy(probs: Tensor, log_probs: Tensor) -> Tensor:
    found = -probs.mul(log_probs).sum(-1)
    if bool(found.isnan().any()):
        # 0 times -inf: a class that is ruled out has no share in the entropy.
        return -probs.mul(log_probs.masked_fill(probs == 0, 0)).sum(-1)
    return found


def blocks(tensor: Tensor) -> tuple[Tensor, ...]:
    """The rows of the last axis, cut into pieces [rows, classes] that stay in the cache."""
    rows = tensor.reshape(-1, tensor.shape[-1])
    return torch.split(rows, max(1, _BLOCK // max(rows.shape[-1], 1)))
