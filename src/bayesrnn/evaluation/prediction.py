"""Prediction with uncertainty, from several draws of the weights."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesrnn.core import Bayesian
from bayesrnn.errors import ConfigError


@dataclass(frozen=True)
class Prediction:
    """Class probabilities averaged over draws, and how unsure they are, in nats.

    total = H[mean p] splits into aleatoric = mean H[p], the noise of the data itself, and
    epistemic = total - aleatoric, the mutual information between the prediction and the weights:
    what more data could teach.
    """

    mean: Tensor
    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


@torch.no_grad()
def predict(
    net: Bayesian,
    *inputs: Any,
    samples: int = 20,
    generator: torch.Generator | None = None,
    **kwargs: Any,
) -> Prediction:
    """Run `net` on `inputs` with `samples` draws of its weights.

    The network's output, or the first of its outputs, must be logits with the classes on the last
    axis. Memory does not grow with the number of draws.
    """
    if samples < 1:
        raise ConfigError(f"samples is {samples}; it has to be 1 or more")
    was_training = net.training
    net.eval()
    mean: Tensor | None = None
    entropy: Tensor | None = None
    try:
        for _ in range(samples):
            output = net(*inputs, weights=net.sample(generator), **kwargs)
            logits = output[0] if isinstance(output, tuple | list) else output
            if not isinstance(logits, Tensor):
                raise ConfigError(
                    "predict needs a network whose (first) output is a tensor of logits; it is a "
                    f"{type(logits).__name__}"
                )
            log_probs = logits.log_softmax(-1)
            probs = log_probs.exp()
            one_entropy = -(probs * log_probs).sum(-1)
            mean = probs if mean is None else mean.add_(probs)
            entropy = one_entropy if entropy is None else entropy.add_(one_entropy)
    finally:
        net.train(was_training)
    assert mean is not None
    assert entropy is not None
    mean, aleatoric = mean / samples, entropy / samples
    total = -torch.xlogy(mean, mean).sum(-1)
    # Rounding may leave a difference a hair below zero, which a mutual information never is.
    return Prediction(mean, total, aleatoric, (total - aleatoric).clamp_min(0))
