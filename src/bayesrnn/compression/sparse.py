"""Matrices of a pruned network: the weights that were dropped take no memory and no time.

A matrix is stored by rows, six bytes for each weight that is left where a dense one has four for
each weight: at 80% dropped, that is 0.3 times the memory. Products are made by the compiled loop,
which reads 16-bit columns; without a compiler by torch's CSR, whose 32-bit columns are made anew.
"""

import functools
import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.errors import ConfigError

#: What decides between the sparse and the dense form of a matrix.
Prefer = Literal["memory", "speed"]

#: Columns that 16 bits can count, and entries that torch's products can.
_NARROW, _MOST_ENTRIES = 1 << 16, 1 << 31
#: Products are faster with at most this share left of at least as many weights
#: (`benchmarks/sparse_products.py`).
_SHARE_LEFT, _WORTH_IT = 0.25, 1 << 18
#: Rows that are read at a time: a list of places is larger than the matrix.
_ROWS_AT_ONCE = 1024


class SparseMatrix(nn.Module):
    """A matrix without its zeros, stored by rows.

    starts: where each row begins in the other two, and in the end where the last one stops.
    columns, values: the entries, row after row.
    """

    starts: Tensor
    columns: Tensor
    values: Tensor

    def __init__(self, starts: Tensor, columns: Tensor, values: Tensor, width: int) -> None:
        super().__init__()
        self.shape = (len(starts) - 1, width)
        for name, tensor in _checked(starts, columns, values, width).items():
            self.register_buffer(name, tensor)
        self.register_load_state_dict_pre_hook(_check_loaded)  # type: ignore[no-untyped-call]

    @classmethod
    def from_dense(cls, dense: Tensor) -> "SparseMatrix":
        """The entries of a matrix that are not zero."""
        if dense.dim() != 2:
            raise ConfigError(f"a sparse matrix has 2 axes, but {dense.dim()} were given")
        dense = dense.detach()
        columns, values = [dense.new_empty(0, dtype=torch.int32)], [dense.new_empty(0)]
        for block in torch.split(dense, _ROWS_AT_ONCE):
            row, column = block.nonzero(as_tuple=True)
            columns.append(column.int())
            values.append(block[row, column])
        starts = torch.zeros(len(dense) + 1, dtype=torch.long, device=dense.device)
        torch.cumsum((dense != 0).sum(1), 0, out=starts[1:])
        return cls(starts, torch.cat(columns), torch.cat(values), dense.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.starts.nbytes + self.columns.nbytes + self.values.nbytes

    def dense(self) -> Tensor:
        """The matrix with its zeros."""
        return self.rows(torch.arange(self.shape[0], device=self.values.device))

    def operand(self) -> "Operand":
        """What `product` multiplies by, made once for many products."""
        return self if kernel_for((self.values,)) is not None else self.torch_operand()

    def torch_operand(self) -> Tensor:
        """The matrix as torch multiplies by it: CSR, or dense where torch has no such product."""
        if not _has_csr_product(self.values):
            return self.dense()
        _pass_over_beta_warning()
        return torch.sparse_csr_tensor(
            self.starts.int(), self.columns.int(), self.values, self.shape, check_invariants=False
        )

    def matmul(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """`x @ W.T + plus` for x [..., columns], plus [rows] or [..., rows]."""
        return product(x, self.operand(), plus)

    def rows(self, indices: Tensor) -> Tensor:
        """The rows asked for, dense: [..., columns] for indices [...]."""
        flat = indices.reshape(-1).long()
        if len(flat) and not 0 <= int(flat.min()) <= int(flat.max()) < self.shape[0]:
            raise IndexError(f"an index is not from 0 to {self.shape[0] - 1}")
        begins = self.starts[flat]
        sizes = self.starts[flat + 1] - begins
        owners = torch.arange(len(flat), device=flat.device).repeat_interleave(sizes)
        before = sizes.cumsum(0) - sizes
        places = torch.arange(len(owners), device=flat.device) + (begins - before)[owners]
        out = self.values.new_zeros(len(flat), self.shape[1])
        out[owners, self.columns[places].long()] = self.values[places]
        return out.view(*indices.shape, self.shape[1])


class DenseMatrix(nn.Module):
    """A dense matrix with the methods of a sparse one."""

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach().clone())
        self.shape = (weight.shape[0], weight.shape[1])

    def operand(self) -> "Operand":
        """What `product` multiplies by."""
        return self.weight

    def matmul(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """`x @ W.T + plus` for x [..., columns], plus [rows] or [..., rows]."""
        return product(x, self.weight, plus)

    def rows(self, indices: Tensor) -> Tensor:
        """The rows asked for: [..., columns] for indices [...]."""
        return F.embedding(indices, self.weight)


Matrix = SparseMatrix | DenseMatrix
Operand = SparseMatrix | Tensor


def product(x: Tensor, weight: Operand, plus: Tensor | None = None) -> Tensor:
    """`x @ weight.T + plus` for the operand of a matrix, x [..., columns], plus [..., rows]."""
    rows, columns = weight.shape
    if x.shape[-1:] != (columns,):
        raise ConfigError(
            f"a matrix of {rows} x {columns} is multiplied by {tuple(x.shape)}; the last axis has "
            f"to have {columns} entries"
        )
    shape = (*x.shape[:-1], rows)
    if plus is not None and plus.shape not in ((rows,), shape):
        raise ConfigError(
            f"{tuple(plus.shape)} are added to a product of {shape}; give as many, or {rows}"
        )
    flat = x.reshape(math.prod(x.shape[:-1]), columns).contiguous()
    if isinstance(weight, SparseMatrix):
        kernel = kernel_for((flat, weight.values))
        if kernel is not None:
            out = flat.new_zeros(len(flat), rows)
            if plus is not None:
                out.copy_(plus.reshape(-1, rows))
            kernel.sparse_product(
                weight.starts, weight.columns, weight.values, flat, out, add=plus is not None
            )
            return out.view(shape)
        weight = weight.torch_operand()
    if weight.layout is torch.strided:
        found = F.linear(x, weight)
    elif len(flat) == 1:  # twice as fast as a product of matrices
        found = torch.mv(weight, flat[0]).view(shape)
    else:
        found = torch.mm(weight, flat.t()).t().contiguous().view(shape)
    return found if plus is None else found.add_(plus)


def has_sparse_product(values: Tensor) -> bool:
    """Whether products with sparse matrices of such values are made without their zeros."""
    return kernel_for((values,)) is not None or _has_csr_product(values)


def _has_csr_product(values: Tensor) -> bool:
    """Torch has one only with MKL."""
    return (
        values.device.type == "cpu"
        and values.dtype in (torch.float32, torch.float64)
        and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    )


def as_matrix(weight: Tensor, prefer: Prefer, together: Sequence[Tensor] = ()) -> Matrix:
    """The weight in the form that is preferred, decided by counting alone.

    prefer: "memory" is sparse where that takes less memory. "speed" is sparse where at most a
        quarter is left of a matrix that is not small.
    together: matrices that "speed" counts as one with this one.
    """
    rows, columns = weight.shape
    if prefer == "memory":
        each = weight.element_size() + _column_type(columns).itemsize
        sparse = each * int(weight.count_nonzero()) + 8 * (rows + 1) < weight.nbytes
    else:
        counted = together or (weight,)
        size = sum(each.numel() for each in counted)
        left = sum(int(each.count_nonzero()) for each in counted)
        sparse = size >= _WORTH_IT and left <= _SHARE_LEFT * size and has_sparse_product(weight)
    return SparseMatrix.from_dense(weight) if sparse else DenseMatrix(weight)


def _column_type(width: int) -> torch.dtype:
    return torch.uint16 if width <= _NARROW else torch.int32


def _checked(starts: Tensor, columns: Tensor, values: Tensor, width: int) -> dict[str, Tensor]:
    """The buffers of a sparse matrix; one that would read outside its own memory is refused."""
    if not starts.dim() == columns.dim() == values.dim() == 1 or not len(starts):
        raise ConfigError("starts, columns and values of a sparse matrix have one axis each")
    if not values.is_floating_point() or any(
        t.is_floating_point() or t.is_complex() or t.dtype is torch.bool for t in (starts, columns)
    ):
        raise ConfigError(
            "a sparse matrix has whole starts and columns and real values, but "
            f"{starts.dtype}, {columns.dtype} and {values.dtype} were given"
        )
    if len(columns) != len(values) or len(values) >= _MOST_ENTRIES:
        raise ConfigError(
            f"a sparse matrix has {len(columns)} columns for {len(values)} values; give one each, "
            f"and fewer than {_MOST_ENTRIES}"
        )
    starts, wide = starts.long(), columns.long()
    if int(starts[0]) or bool((starts.diff() < 0).any()) or int(starts[-1]) != len(values):
        raise ConfigError(
            f"the starts of a sparse matrix have to rise from 0 to its {len(values)} values"
        )
    if len(wide):
        least, most = (int(edge) for edge in wide.aminmax())
        if least < 0 or most >= width:
            raise ConfigError(
                f"a sparse matrix of {width} columns has values in columns {least} to {most}"
            )
    return {
        "starts": starts.contiguous(),
        "columns": columns.to(_column_type(width)).contiguous(),
        "values": values.detach().contiguous(),
    }


def _check_loaded(matrix: SparseMatrix, state: dict[str, Any], prefix: str, *others: Any) -> None:
    """Check what `load_state_dict` was given before any of it is taken."""
    del others
    given = {name: state.get(prefix + name, tensor) for name, tensor in matrix.named_buffers()}
    if all(given[name].shape == tensor.shape for name, tensor in matrix.named_buffers()):
        checked = _checked(given["starts"], given["columns"], given["values"], matrix.shape[1])
        state.update({prefix + name: checked[name] for name in given if prefix + name in state})


@functools.cache
def _pass_over_beta_warning() -> None:
    """Torch warns once in a process that CSR matrices are in beta state; do it here, unseen."""
    nothing = torch.empty(0, dtype=torch.int32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor(nothing.new_zeros(1), nothing, nothing.float(), (0, 1))
