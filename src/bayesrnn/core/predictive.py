"""Draws for prediction: no KL divergence, no gradient, and of an embedding only what is read.

The numbers are those of `Bayesian.sample`, to the last bit; where the compiled loops cannot do the
work, `Bayesian.sample` does it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.kernel.compiled import Loops, kernel_for
from bayesrnn.core.weights import Weights


@torch.no_grad()
def predictive(
    net: Bayesian,
    seed: int,
    factor: float = 1.0,
    signs: Sequence[int] = (1,),
    into: Sequence[Weights] = (),
) -> tuple[Weights, ...]:
    """The draws of one noise, one for each of `signs`: (1,), or both at once, (1, -1).

    factor: multiplies the noise.
    into: earlier draws, of the same signs, that nobody needs any more: their memory is used again.
        Getting new memory from the system takes as long as drawing.
    """
    locs, rhos = ([tree.get_parameter(name) for name in net.names] for tree in (net.loc, net.rho))
    loops = kernel_for([*locs, *rhos])
    if loops is None or torch.compiler.is_compiling():
        noise = net.noise(seed).scaled(factor)
        return tuple(net.sample(noise=noise if sign > 0 else noise.mirrored()) for sign in signs)
    embeddings = _embeddings(net.module)
    made: list[dict[str, Tensor]] = [{} for _ in signs]
    for stream, (name, loc, rho) in enumerate(zip(net.names, locs, rhos, strict=True)):
        fixed = net.padding.get(name, -1)
        one = _Posterior(loops, loc, rho, net.min_sigma, (seed, stream), factor, fixed)
        if name in embeddings:
            tensors: Sequence[Tensor] = [RowsWhenRead.of(one, sign) for sign in signs]
        else:
            tensors = [old[name] for old in into] or [torch.empty_like(loc) for _ in signs]
            one.draw(signs[0], *tensors)
        for weights, tensor in zip(made, tensors, strict=True):
            weights[name] = tensor
    return tuple(map(Weights, made))


@dataclass(frozen=True)
class _Posterior:
    """The posterior of one tensor, and the noise of a draw."""

    loops: Loops
    loc: Tensor
    rho: Tensor
    floor: float
    noise: tuple[int, int]
    factor: float
    fixed: int

    def draw(
        self, sign: int, out: Tensor, mirrored: Tensor | None = None, places: Tensor | None = None
    ) -> Tensor:
        """Fill `out`, and the draw of the other sign if it is wanted; all rows, or some."""
        loops, fixed, floor = self.loops, self.fixed, self.floor
        loops.sample(
            self.loc, self.rho, floor, self.noise, self.factor, sign, out, mirrored, places, fixed
        )
        return out


class RowsWhenRead(Tensor):
    """The matrix of an embedding, of which those rows are drawn that an input names.

    Whatever else is done with it gets the whole matrix, which is then drawn once.
    """

    posterior: _Posterior
    side: int
    whole: Tensor | None
    __torch_function__: ClassVar[Any] = torch._C._disabled_torch_function_impl

    @classmethod
    def of(cls, posterior: _Posterior, sign: int) -> "RowsWhenRead":
        """The draw of a sign, not drawn yet."""
        loc = posterior.loc
        made = Tensor._make_wrapper_subclass(cls, loc.shape, dtype=loc.dtype)
        assert isinstance(made, cls)
        made.posterior, made.side, made.whole = posterior, sign, None
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Any operation of torch."""
        del types
        if func is torch.ops.aten.embedding.default and isinstance(args[0], cls):
            words, rows = args[1], args[0]._rows_of(args[1])
            if rows is not None:
                return rows.view(*words.shape, -1)
        args, kwargs = tree_map_only(cls, cls.drawn, (args, dict(kwargs or {})))
        return func(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> Tensor:
        """An ordinary tensor."""
        return self.drawn().clone()

    def drawn(self) -> Tensor:
        """All of it."""
        if self.whole is None:
            self.whole = self.posterior.draw(self.side, torch.empty_like(self.posterior.loc))
        return self.whole

    def _rows_of(self, words: Tensor) -> Tensor | None:
        """The rows of some words, drawn; None where they had better be taken from all of them."""
        count, columns = self.posterior.loc.shape
        if self.whole is not None or 2 * words.numel() > count:
            return None
        unique: Any = torch.unique  # without types
        places, where = unique(words.long(), return_inverse=True)
        if not len(places) or places[0] < 0 or places[-1] >= count:
            return None  # torch says what is wrong
        out = self.posterior.loc.new_empty(len(places), columns)
        return self.posterior.draw(self.side, out, places=places)[where]


def _embeddings(module: nn.Module) -> set[str]:
    """The names of matrices that are read row by row, but for those that the layer itself changes.

    Of a tied matrix that is the name it is drawn by, which need not be the embedding's.
    """
    matrices = {
        id(layer.weight)
        for layer in module.modules()
        if type(layer) is nn.Embedding and layer.max_norm is None
    }
    return {name for name, weight in module.named_parameters() if id(weight) in matrices}
