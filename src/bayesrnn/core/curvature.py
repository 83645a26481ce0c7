"""The curvature of a softmax's likelihood by the weights of the linear layer below it.

With p the probabilities of a prediction and x what the layer reads, minus the log-likelihood has
the second derivatives p_i (1 - p_i) by bias i and p_i (1 - p_i) x_j^2 by weight ij. No target is in
them, and they are sums over predictions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn


@dataclass
class LastLayer:
    """What a linear layer read and gave, for its parameters' `curvature`; `name` is the layer's."""

    name: str
    layer: nn.Linear
    inputs: list[Tensor] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)

    @torch.no_grad()
    def curvature(self) -> dict[str, Tensor]:
        """That of each of its parameters, by name."""
        bias: Tensor | None = None
        weight: Tensor | None = None
        for inputs, logits in zip(self.inputs, self.logits, strict=True):
            p = torch.softmax(logits.detach().flatten(0, -2), -1)
            spread = p * (1 - p)
            more = spread.sum(0), spread.T @ inputs.detach().flatten(0, -2).square()
            bias = more[0] if bias is None else bias + more[0]
            weight = more[1] if weight is None else weight + more[1]
        found = {"weight": weight, "bias": bias if self.layer.bias is not None else None}
        return {f"{self.name}.{n}": tensor for n, tensor in found.items() if tensor is not None}


@contextmanager
def watched(module: nn.Module, name: str) -> Iterator[LastLayer]:
    """Inside the block, note what the linear layer of this name reads and gives."""
    layer = module.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    seen = LastLayer(name, layer)

    def note(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        seen.inputs.append(inputs[0])
        seen.logits.append(output)

    handle = layer.register_forward_hook(note)
    try:
        yield seen
    finally:
        handle.remove()
