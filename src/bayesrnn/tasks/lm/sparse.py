"""Inference with pruned networks: the weights that were dropped take no memory and no time.

A matrix is kept by rows, six bytes for each weight that is left where a dense one has four for
each weight: at 80% dropped, that is 0.3 times the memory.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.errors import ConfigError
from bayesrnn.nn.recurrent import CELLS, State
from bayesrnn.tasks.lm.model import LanguageModel

#: What decides between the sparse and the dense form of a matrix.
Prefer = Literal["memory", "speed"]

#: Rows that are made dense at a time where there is no kernel.
_ROWS_AT_ONCE = 1024
#: Columns that 16 bits can count.
_NARROW = 1 << 16
#: A timing: so many words of each stream, and so many turns of which the median counts.
_WORDS, _TURNS = 35, 5
#: By less than this, neither form is faster: a timing is not that exact.
_CLEARLY = 1.1


class SparseMatrix(nn.Module):
    """A matrix without its zeros, kept by rows.

    starts: where each row begins in the other two, and in the end where the last one stops.
    columns, values: the entries, row after row.
    """

    starts: Tensor
    columns: Tensor
    values: Tensor

    def __init__(self, starts: Tensor, columns: Tensor, values: Tensor, width: int) -> None:
        super().__init__()
        _check(starts, columns, values, width)
        self.register_buffer("starts", starts.long().contiguous())
        self.register_buffer("columns", columns.to(_column_type(width)).contiguous())
        self.register_buffer("values", values.detach().contiguous())
        self.shape = (len(starts) - 1, width)

    @classmethod
    def from_dense(cls, dense: Tensor) -> "SparseMatrix":
        """The entries of a matrix that are not zero."""
        if dense.dim() != 2:
            raise ConfigError(f"a sparse matrix has 2 axes, but {dense.dim()} were given")
        dense = dense.detach()
        columns, values = [], []
        # Some rows at a time: a list of places is larger than the matrix.
        for block in torch.split(dense, _ROWS_AT_ONCE):
            row, column = block.nonzero(as_tuple=True)
            columns.append(column.to(_column_type(dense.shape[1])))
            values.append(block[row, column])
        starts = torch.zeros(len(dense) + 1, dtype=torch.long, device=dense.device)
        torch.cumsum((dense != 0).sum(1), 0, out=starts[1:])
        if not columns:
            return cls(starts, starts.new_empty(0), dense.new_empty(0), dense.shape[1])
        return cls(starts, torch.cat(columns), torch.cat(values), dense.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.starts.nbytes + self.columns.nbytes + self.values.nbytes

    def dense(self, first: int = 0, last: int | None = None) -> Tensor:
        """The matrix, or some of its rows, with its zeros."""
        starts = self.starts[first : self.shape[0] + 1 if last is None else last + 1]
        begin, end = int(starts[0]), int(starts[-1])
        rows = torch.arange(len(starts) - 1, device=starts.device)
        matrix = self.values.new_zeros(len(rows), self.shape[1])
        owners = rows.repeat_interleave(starts.diff())
        matrix[owners, self.columns[begin:end].long()] = self.values[begin:end]
        return matrix

    def matmul(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """`x @ W.T + bias` for x [..., columns]."""
        flat = x.reshape(-1, self.shape[1]).contiguous()
        out = flat.new_empty(len(flat), self.shape[0])
        self.multiply(flat, out, bias)
        return out.view(*x.shape[:-1], self.shape[0])

    def multiply(
        self, x: Tensor, out: Tensor, bias: Tensor | None = None, add: bool = False
    ) -> None:
        """Write `x @ W.T + bias` to `out`, or add it, for x [batch, columns], out [batch, rows]."""
        known = (x, out, self.values) if bias is None else (x, out, self.values, bias)
        kernel = kernel_for(known)
        if kernel is not None:
            kernel.sparse_product(self.starts, self.columns, self.values, x, out, bias, add)
            return
        for first in range(0, self.shape[0], _ROWS_AT_ONCE):
            last = min(first + _ROWS_AT_ONCE, self.shape[0])
            part = F.linear(x, self.dense(first, last), None if bias is None else bias[first:last])
            out[:, first:last] = out[:, first:last] + part if add else part

    def rows(self, indices: Tensor) -> Tensor:
        """The rows asked for, dense: [..., columns] for indices [...]."""
        flat = indices.reshape(-1).long().contiguous()
        out = self.values.new_empty(len(flat), self.shape[1])
        kernel = kernel_for((out, self.values))
        if kernel is not None:
            kernel.sparse_rows(self.starts, self.columns, self.values, flat, out)
        else:
            out = self._rows(flat)
        return out.view(*indices.shape, self.shape[1])

    def _rows(self, indices: Tensor) -> Tensor:
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < self.shape[0]:
            raise IndexError(f"an index is not from 0 to {self.shape[0] - 1}")
        begins = self.starts[indices]
        sizes = self.starts[indices + 1] - begins
        owners = torch.arange(len(indices), device=indices.device).repeat_interleave(sizes)
        before = sizes.cumsum(0) - sizes
        places = torch.arange(len(owners), device=indices.device) + (begins - before)[owners]
        out = self.values.new_zeros(len(indices), self.shape[1])
        out[owners, self.columns[places].long()] = self.values[places]
        return out


class DenseMatrix(nn.Module):
    """A dense matrix that can do what a sparse one can."""

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach().clone())
        self.shape = (weight.shape[0], weight.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return self.weight.nbytes

    def matmul(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """`x @ W.T + bias` for x [..., columns]."""
        return F.linear(x, self.weight, bias)

    def multiply(
        self, x: Tensor, out: Tensor, bias: Tensor | None = None, add: bool = False
    ) -> None:
        """Write `x @ W.T + bias` to `out`, or add it, for x [batch, columns], out [batch, rows]."""
        part = F.linear(x, self.weight, bias)
        out.copy_(out + part if add else part)

    def rows(self, indices: Tensor) -> Tensor:
        """The rows asked for: [..., columns] for indices [...]."""
        return F.embedding(indices, self.weight)


Matrix = SparseMatrix | DenseMatrix
Weight = Tensor | SparseMatrix
Form = Literal["sparse", "dense", "smaller"]


class _Layer(nn.Module):
    """A recurrent layer step by step: (x [time, batch, inputs], state) to (outputs, state)."""

    bias_ih: Tensor
    bias_hh: Tensor

    def __init__(self, cell: str, ih: Matrix, hh: Matrix, bias_ih: Tensor, bias_hh: Tensor) -> None:
        super().__init__()
        self.cell, self.ih, self.hh = cell, ih, hh
        together = cell != "gru"  # the two biases are only ever added up
        first, second = bias_ih.detach(), bias_hh.detach()
        self.register_buffer("bias_ih", first + second if together else first.clone())
        self.register_buffer("bias_hh", torch.zeros_like(second) if together else second.clone())

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        inputs = self.ih.matmul(x, self.bias_ih)
        hh = self.hh
        if isinstance(hh, SparseMatrix) and kernel_for((hh.values,)) is None:
            hh = DenseMatrix(hh.dense())  # once for all steps
        step = {"lstm": _lstm_step, "gru": _gru_step, "rnn": _rnn_step}[self.cell]
        outputs = x.new_empty(*x.shape[:2], self.hh.shape[1])
        for given, output in zip(inputs, outputs, strict=True):
            state = step(given, state, hh, self.bias_hh, output)
        return outputs, state


def _lstm_step(given: Tensor, state: State, hh: Matrix, bias: Tensor, output: Tensor) -> State:
    h, c = state
    hh.multiply(h, given, add=True)
    i, f, g, o = given.chunk(4, 1)
    c = torch.addcmul(f.sigmoid_() * c, i.sigmoid_(), g.tanh_())
    torch.mul(o.sigmoid_(), c.tanh(), out=output)
    return output, c


def _gru_step(given: Tensor, state: State, hh: Matrix, bias: Tensor, output: Tensor) -> State:
    assert isinstance(state, Tensor)
    r, z, n = given.chunk(3, 1)
    from_r, from_z, from_n = hh.matmul(state, bias).chunk(3, 1)
    n = torch.addcmul(n, r.add_(from_r).sigmoid_(), from_n).tanh_()
    return torch.lerp(n, state, z.add_(from_z).sigmoid_(), out=output)


def _rnn_step(given: Tensor, state: State, hh: Matrix, bias: Tensor, output: Tensor) -> State:
    assert isinstance(state, Tensor)
    hh.multiply(state, given, add=True)
    return torch.tanh(given, out=output)


class SparseLanguageModel(nn.Module):
    """A language model for inference, each matrix sparse or dense; called like `LanguageModel`."""

    output_bias: Tensor

    def __init__(
        self,
        cell: str,
        embedding: Matrix,
        layers: list["_Recurrent"],
        output: Matrix,
        output_bias: Tensor,
    ) -> None:
        super().__init__()
        self.cell, self.embedding, self.output = cell, embedding, output
        self.layers = nn.ModuleList(layers)
        self.register_buffer("output_bias", output_bias.detach().clone())

    @torch.no_grad()
    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Logits [time, batch, vocabulary] for the word after each of `words` [time, batch]."""
        x = self.embedding.rows(words)
        if state is None:
            zeros = x.new_zeros(len(self.layers), words.shape[1], self.output.shape[1])
            state = _zero_state(self.cell, zeros)
        states = []
        for number, layer in enumerate(self.layers):
            x, after = layer(x, _of_layer(state, number))
            states.append(after)
        if isinstance(state, tuple):
            state = (torch.stack([h for h, _ in states]), torch.stack([c for _, c in states]))
        else:
            state = torch.stack(states)
        return self.output.matmul(x, self.output_bias), state

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the weights take; tied ones count once."""
        return sum(t.nbytes for t in (*self.buffers(), *self.parameters()))

    @property
    def forms(self) -> dict[str, str]:
        """Whether each matrix is "sparse" or "dense", by the names of `LanguageModel`."""
        found = {
            "embedding.weight": _form_of(self.embedding),
            "output.weight": _form_of(self.output),
        }
        for number, layer in enumerate(self.layers):
            for kind in ("ih", "hh"):
                form = _form_of(getattr(layer, kind)) if isinstance(layer, _Layer) else "dense"
                found[f"recurrent.weight_{kind}_l{number}"] = form
        return found


class _TorchLayer(nn.Module):
    """A dense recurrent layer by torch's own loop, which is faster than one in Python."""

    def __init__(self, cell: str, ih: Tensor, hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> None:
        super().__init__()
        self.recurrent = CELLS[cell](ih.shape[1], hh.shape[1], device="meta").to(ih.dtype)
        given = {"weight_ih": ih, "weight_hh": hh, "bias_ih": bias_ih, "bias_hh": bias_hh}
        copies = {f"{name}_l0": tensor.detach().clone() for name, tensor in given.items()}
        self.recurrent.load_state_dict(copies, assign=True)
        self.recurrent.requires_grad_(False)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if isinstance(state, tuple):
            outputs, (h, c) = self.recurrent(x, (state[0][None], state[1][None]))
            return outputs, (h[0], c[0])
        outputs, h = self.recurrent(x, state[None])
        return outputs, h[0]


_Recurrent = _Layer | _TorchLayer
Part = TypeVar("Part")


def sparse_language_model(
    module: LanguageModel, streams: int = 1, prefer: Prefer = "memory"
) -> SparseLanguageModel:
    """The same network for inference, without the weights that are zero.

    Its results are those of the module to the rounding of floats; it has weights of its own, and
    no gradients, no dropout. See `language_model_from` for `streams` and `prefer`.
    """
    weights: dict[str, Weight] = dict(module.state_dict())
    if module.output.weight is module.embedding.weight:
        del weights["output.weight"]
    cell = next(name for name, kind in CELLS.items() if isinstance(module.recurrent, kind))
    return language_model_from(weights, cell, streams, prefer)


def language_model_from(
    weights: Mapping[str, Weight],
    cell: str,
    streams: int = 1,
    prefer: Prefer = "memory",
) -> SparseLanguageModel:
    """A language model for inference from weights by the names of `LanguageModel`.

    Matrices may be given sparse, so that dense ones need never be made. Without "output.weight"
    the output is tied to the embedding.

    prefer: "memory" keeps a matrix sparse where that takes less memory. "speed" measures on this
    machine, with its present number of threads and with this many `streams` read at a time, and
    keeps it sparse where that is faster; the two matrices of a recurrent layer go together. Where
    neither is clearly faster, and for an embedding, where words are only looked up, memory decides.
    """
    if prefer not in get_args(Prefer):
        raise ConfigError(f"prefer is {prefer!r}; there are: {', '.join(get_args(Prefer))}")
    if streams < 1:
        raise ConfigError(f"there are {streams} streams; there has to be at least one")
    if cell not in CELLS:
        raise ConfigError(f"cell is {cell!r}; there are: {', '.join(CELLS)}")
    bias = _vector(weights, "output.bias")
    embedding = weights["embedding.weight"]
    output = weights.get("output.weight", embedding)
    x = torch.zeros(_WORDS, streams, output.shape[1], dtype=bias.dtype, device=bias.device)
    state = _zero_state(cell, x[0])
    layers: list[_Recurrent] = []
    while f"recurrent.weight_hh_l{len(layers)}" in weights:
        build = partial(_layer, weights, cell, len(layers))
        layers.append(_made(prefer, build, lambda layer: layer(x, state)))
    last = _made(prefer, partial(_matrix, output), lambda matrix: matrix.matmul(x, bias))
    first = last if output is embedding else _matrix(embedding, "smaller")
    return SparseLanguageModel(cell, first, layers, last, bias)


def _made(prefer: Prefer, build: Callable[[Form], Part], run: Callable[[Part], object]) -> Part:
    """A part of the network in the form that is preferred."""
    if prefer == "memory":
        return build("smaller")
    parts = [build("dense"), build("sparse")]
    dense, sparse = _seconds([partial(run, part) for part in parts])
    if max(dense, sparse) < _CLEARLY * min(dense, sparse):
        return build("smaller")
    return parts[1] if sparse < dense else parts[0]


@torch.no_grad()
def _seconds(runs: Sequence[Callable[[], object]]) -> list[float]:
    """The median time of each; they take turns, so that a busy moment hits all alike."""
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(_TURNS + 1):
        for run, own in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            if turn:  # the first one warms up
                own.append(time.perf_counter() - start)
    return [statistics.median(own) for own in times]


def _layer(weights: Mapping[str, Weight], cell: str, number: int, form: Form) -> "_Recurrent":
    ih, hh = (weights[f"recurrent.weight_{kind}_l{number}"] for kind in ("ih", "hh"))
    biases = [_vector(weights, f"recurrent.bias_{kind}_l{number}") for kind in ("ih", "hh")]
    first, second = _matrix(ih, form), _matrix(hh, form)
    if isinstance(first, DenseMatrix) and isinstance(second, DenseMatrix):
        return _TorchLayer(cell, first.weight, second.weight, biases[0], biases[1])
    return _Layer(cell, first, second, biases[0], biases[1])


def _matrix(weight: Weight, form: Form) -> Matrix:
    """The weight in this form; a sparse one is shared, a dense one copied."""
    if form == "smaller":
        rows, width = weight.shape
        left = weight.values if isinstance(weight, SparseMatrix) else weight
        item = left.element_size()
        sparse = int(left.count_nonzero()) * (item + _column_type(width).itemsize) + 8 * (rows + 1)
        form = "sparse" if sparse < rows * width * item else "dense"
    if form == "sparse":
        return weight if isinstance(weight, SparseMatrix) else SparseMatrix.from_dense(weight)
    return DenseMatrix(weight.dense() if isinstance(weight, SparseMatrix) else weight)


def _form_of(matrix: Matrix) -> str:
    return "sparse" if isinstance(matrix, SparseMatrix) else "dense"


def _vector(weights: Mapping[str, Weight], name: str) -> Tensor:
    vector = weights[name]
    return vector.dense().flatten() if isinstance(vector, SparseMatrix) else vector


def _zero_state(cell: str, like: Tensor) -> State:
    zeros = torch.zeros_like(like)
    return (zeros, zeros) if cell == "lstm" else zeros


def _of_layer(state: State, number: int) -> State:
    if isinstance(state, tuple):
        return state[0][number].contiguous(), state[1][number].contiguous()
    return state[number].contiguous()


def _column_type(width: int) -> torch.dtype:
    return torch.uint16 if width <= _NARROW else torch.int32


def _check(starts: Tensor, columns: Tensor, values: Tensor, width: int) -> None:
    """Refuse a matrix that would read outside its own memory."""
    if not starts.dim() == columns.dim() == values.dim() == 1 or not len(starts):
        raise ConfigError("starts, columns and values of a sparse matrix have one axis each")
    if int(starts[0]) or bool((starts.diff() < 0).any()) or int(starts[-1]) != len(values):
        raise ConfigError(
            f"the starts of a sparse matrix have to rise from 0 to its {len(values)} values"
        )
    if len(columns) != len(values):
        raise ConfigError(
            f"a sparse matrix has {len(columns)} columns for {len(values)} values; give one each"
        )
    if len(columns):
        least, most = (int(edge) for edge in columns.long().aminmax())
        if least < 0 or most >= width:
            raise ConfigError(
                f"a sparse matrix of {width} columns has values in columns {least} to {most}"
            )
