"""What `fit` has to know of the batches given to it: their predictions, and who shuffles them."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from bayesrnn.errors import ConfigError


def predictions(batch: Any) -> int:
    """How many predictions a batch asks for: the elements of its target."""
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise ConfigError(
            f"a batch is a {type(batch).__name__}; it has to be a tuple of inputs and, last, the "
            "target, such as a DataLoader of a TensorDataset gives"
        )
    targets = [leaf for leaf in tree_leaves(batch[-1]) if isinstance(leaf, Tensor)]
    if not targets or not targets[0].numel():
        raise ConfigError("the last part of a batch is its target; it has to hold a tensor")
    return targets[0].numel()


def epoch_predictions(batches: Any, first: int) -> int:
    """How many predictions an epoch asks for.

    Batches in a list are counted. Others are not read for that: they are taken to be all as large
    as the very first one, of `first` predictions, which the last one of a `DataLoader` may not be.
    """
    if isinstance(batches, list | tuple):
        return sum(map(predictions, batches))
    return first * len(batches)


def generators_of(batches: Any) -> list[torch.Generator]:
    """The generators of their own that a `DataLoader` and its samplers have.

    A sampler may wrap another, as a `BatchSampler` does.
    """
    sources = [batches]
    for source in sources:
        for name in ("sampler", "batch_sampler"):
            inner = getattr(source, name, None)
            if inner is not None and all(inner is not each for each in sources):
                sources.append(inner)
    found = [getattr(source, "generator", None) for source in sources]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())
