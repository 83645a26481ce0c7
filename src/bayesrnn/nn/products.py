"""Matrix products by oneDNN, with which torch computes its own recurrent layers.

For other float32 products torch asks MKL, which is half as fast on processors of AMD, and where few
rows meet a large matrix. Both round differently, so results agree to the precision of floats. What
oneDNN cannot do, or not on this machine, `torch.nn.functional.linear` does.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

#: Fewer products with one matrix are not worth bringing it into oneDNN's order.
_WORTH_PACKING = 8


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x @ weight.T + bias, with gradients."""
    tensors = [x, weight] if bias is None else [x, weight, bias]
    if not _usable(tensors):
        return F.linear(x, weight, bias)
    made: Tensor = _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return made


def product(x: Tensor, weight: Tensor) -> Tensor:
    """x @ weight.T of two matrices, without gradients."""
    if not _usable([x, weight]):
        return x @ weight.t()
    return _by_onednn(x.contiguous(), weight.contiguous())


class Repeated:
    """Products of a few rows at a time with one matrix, `count` of them, without gradients."""

    def __init__(self, weight: Tensor, rows: int, count: int) -> None:
        self._weight, self._packed = weight, None
        if count >= _WORTH_PACKING and rows and _usable([weight]):
            reorder = torch.ops.mkldnn._reorder_linear_weight
            self._packed = reorder(weight.contiguous(), rows)

    def __call__(self, x: Tensor) -> Tensor:
        """x @ weight.T."""
        if self._packed is None or x.dtype is not self._weight.dtype:
            return x @ self._weight.t()
        return _by_onednn(x.contiguous(), self._packed)

    def added(self, to: Tensor, x: Tensor, out: Tensor) -> None:
        """Write to + x @ weight.T to `out`."""
        if self._packed is None:
            torch.addmm(to, x, self._weight.t(), out=out)
        else:
            torch.add(to, self(x), out=out)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows, ctx.has_bias = x.reshape(-1, x.shape[-1]), bias is not None
        ctx.save_for_backward(rows, weight)
        made = product(rows, weight)
        return (made if bias is None else made.add_(bias)).view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_made: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        by_rows = by_made.reshape(-1, by_made.shape[-1])
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        by_x = product(by_rows, weight.t()).view(*by_made.shape[:-1], -1) if needs_x else None
        by_weight = product(by_rows.t(), rows.t()) if needs_weight else None
        return by_x, by_weight, by_rows.sum(0) if needs_bias else None


def _by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    made: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return made


def _usable(tensors: list[Tensor]) -> bool:
    """Whether oneDNN is there and can multiply these."""
    have: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return (
        have
        and not torch.compiler.is_compiling()
        and bool(torch.backends.mkldnn.enabled)
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        and not torch.is_autocast_enabled("cpu")
        and all(
            type(t) in (Tensor, torch.nn.Parameter)
            and t.dtype is torch.float32
            and t.device.type == "cpu"
            and t.numel()
            for t in tensors
        )
    )
