"""Language models for inference whose matrices are without the weights that were dropped."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bayesrnn.compression.cutting import cut
from bayesrnn.compression.sparse import (
    DenseMatrix,
    Matrix,
    Operand,
    Prefer,
    SparseMatrix,
    as_matrix,
    product,
)
from bayesrnn.errors import ConfigError
from bayesrnn.nn.cut import CutLinear, layer_weights, placed, stacked
from bayesrnn.nn.recurrent import CELLS, State
from bayesrnn.nn.temperature import Tempered
from bayesrnn.tasks.lm.model import LanguageModel


class _SparseLayer(nn.Module):
    """A recurrent layer step by step: (x [time, batch, inputs], state) to (outputs, state)."""

    bias_ih: Tensor
    bias_hh: Tensor

    def __init__(self, cell: str, ih: Matrix, hh: Matrix, bias_ih: Tensor, bias_hh: Tensor) -> None:
        super().__init__()
        self.cell, self.ih, self.hh, self.width = cell, ih, hh, hh.shape[1]
        together = cell != "gru"  # the two biases are only ever added up
        first, second = bias_ih.detach(), bias_hh.detach()
        self.register_buffer("bias_ih", first + second if together else first.clone())
        self.register_buffer("bias_hh", torch.zeros_like(second) if together else second.clone())

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        inputs = self.ih.matmul(x, self.bias_ih)
        hh = self.hh.operand()  # once for all steps
        step = {"lstm": _lstm_step, "gru": _gru_step, "rnn": _rnn_step}[self.cell]
        outputs = x.new_empty(*x.shape[:2], hh.shape[1])
        for given, output in zip(inputs, outputs, strict=True):
            state = step(given, state, hh, self.bias_hh, output)
        return outputs, state


def _lstm_step(given: Tensor, state: State, hh: Operand, bias: Tensor, output: Tensor) -> State:
    h, c = state
    i, f, g, o = product(h, hh, given).chunk(4, 1)
    c = torch.addcmul(f.sigmoid_() * c, i.sigmoid_(), g.tanh_())
    torch.mul(o.sigmoid_(), c.tanh(), out=output)
    return output, c


def _gru_step(given: Tensor, state: State, hh: Operand, bias: Tensor, output: Tensor) -> State:
    assert isinstance(state, Tensor)
    r, z, n = given.chunk(3, 1)
    from_r, from_z, from_n = product(state, hh, bias).chunk(3, 1)
    n = torch.addcmul(n, r.add_(from_r).sigmoid_(), from_n).tanh_()
    return torch.lerp(n, state, z.add_(from_z).sigmoid_(), out=output)


def _rnn_step(given: Tensor, state: State, hh: Operand, bias: Tensor, output: Tensor) -> State:
    assert isinstance(state, Tensor)
    return torch.tanh(product(state, hh, given), out=output)


class _TorchLayer(nn.Module):
    """A dense recurrent layer by torch's own loop, which is faster than one in Python."""

    def __init__(self, cell: str, ih: Tensor, hh: Tensor, bias_ih: Tensor, bias_hh: Tensor) -> None:
        super().__init__()
        self.width = hh.shape[1]
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


class SparseLanguageModel(Tempered):
    """A language model for inference without weights that are zero; called like `LanguageModel`.

    Its results are those of the module to the rounding of floats; its weights are copies, and it
    has no gradients and no dropout.

    module: whole, or with units cut out of it (`compression.cutting`).

    prefer: as in `as_matrix`; the two matrices of a recurrent layer go together for "speed". For
        an embedding, where words are only looked up, memory decides.
    """

    output_bias: Tensor

    def __init__(self, module: LanguageModel, prefer: Prefer = "memory") -> None:
        super().__init__()
        self.temperature = module.temperature
        self.cell = module.recurrent.mode.lower().removesuffix("_tanh")
        self.output = as_matrix(module.output.weight, prefer)
        self.register_buffer("output_bias", module.output.bias.detach().clone())
        #: Where outputs were cut out, which are left; the others are their bias.
        self.output_rows = module.output.rows if isinstance(module.output, CutLinear) else None
        self.embedding = self.output
        if module.output.weight is not module.embedding.weight:
            self.embedding = as_matrix(module.embedding.weight, "memory")
        layers = [_layer(self.cell, weights, prefer) for weights in layer_weights(module.recurrent)]
        self.layers = nn.ModuleList(layers)
        self.widths = [layer.width for layer in layers]

    @torch.no_grad()
    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Logits [time, batch, vocabulary] for the word after each of `words` [time, batch]."""
        x = self.embedding.rows(words)
        widest = max(self.widths)
        shape = (len(self.layers), words.shape[1], widest)
        if state is None:
            zeros = x.new_zeros(shape)
            state = (zeros, zeros) if self.cell == "lstm" else zeros
        self._check_state(state, shape)
        states = []
        for number, (layer, width) in enumerate(zip(self.layers, self.widths, strict=True)):
            parts = state if isinstance(state, tuple) else (state,)
            own = [part[number, :, :width].contiguous() for part in parts]
            x, after = layer(x, (own[0], own[1]) if self.cell == "lstm" else own[0])
            states.append(after)
        if self.cell == "lstm":
            state = (
                stacked([h for h, _ in states], widest),
                stacked([c for _, c in states], widest),
            )
        else:
            state = stacked(states, widest)
        return self.tempered(self._logits(x)), state

    def _logits(self, x: Tensor) -> Tensor:
        if self.output_rows is None:
            return self.output.matmul(x, self.output_bias)
        found = self.output.matmul(x, self.output_bias[self.output_rows])
        return placed(found, self.output_rows, self.output_bias)

    def _check_state(self, state: State, shape: tuple[int, ...]) -> None:
        given = state if isinstance(state, tuple) else (state,)
        if [each.shape for each in given] != [shape] * (2 if self.cell == "lstm" else 1):
            raise ConfigError(
                f"the state has the shape {' and '.join(str(tuple(each.shape)) for each in given)}"
                f", but this {self.cell} needs {shape}{' twice' if self.cell == 'lstm' else ''}"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the weights take; tied ones count once."""
        return sum(t.nbytes for t in (*self.buffers(), *self.parameters()))

    @property
    def forms(self) -> dict[str, str]:
        """Whether each matrix is "sparse" or "dense", by the names of `LanguageModel`."""
        matrices: dict[str, nn.Module | None] = {
            "embedding.weight": self.embedding,
            "output.weight": self.output,
        }
        for number, layer in enumerate(self.layers):
            for kind in ("ih", "hh"):
                matrices[f"recurrent.weight_{kind}_l{number}"] = getattr(layer, kind, None)
        return {
            name: "sparse" if isinstance(matrix, SparseMatrix) else "dense"
            for name, matrix in matrices.items()
        }


def _layer(cell: str, weights: Sequence[Tensor], prefer: Prefer) -> _SparseLayer | _TorchLayer:
    """A layer of matrices and biases: of inputs and of the state, twice."""
    matrices, biases = weights[:2], weights[2:]
    ih, hh = (as_matrix(weight, prefer, together=matrices) for weight in matrices)
    if isinstance(ih, DenseMatrix) and isinstance(hh, DenseMatrix):
        return _TorchLayer(cell, ih.weight, hh.weight, biases[0], biases[1])
    return _SparseLayer(cell, ih, hh, biases[0], biases[1])


def smallest(module: nn.Module, device: torch.device) -> nn.Module:
    """A pruned language model for inference: without units that do nothing, and without weights
    that were dropped where leaving them out is faster.
    """
    assert isinstance(module, LanguageModel)
    module = cut(module)
    return SparseLanguageModel(module, prefer="speed") if device.type == "cpu" else module


def whole(module: nn.Module, device: torch.device) -> nn.Module:
    """A pruned language model that can learn, as it is."""
    del device
    return module
