"""Layers with random masks, and the distribution of the masks."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn

#: Dropped units are zero; or all units are multiplied by Gaussian noise.
MaskNoise = Literal["bernoulli", "gaussian"]
Gates = Literal["tied", "untied"]


def draw_mask(shape: tuple[int, ...], rate: float, noise: MaskNoise, like: Tensor) -> Tensor:
    """Factors of mean 1 and variance p / (1 - p), where p is the rate, from torch's generator.

    bernoulli: 0 with probability p, else 1 / (1 - p) (Srivastava et al. 2014, "inverted").
    gaussian: N(1, p / (1 - p)) (the same paper, section 10).
    """
    mask = like.new_empty(shape)
    if noise == "gaussian":
        return mask.normal_(1.0, math.sqrt(rate / (1 - rate)))
    return mask.bernoulli_(1 - rate).div_(1 - rate)


@dataclass(frozen=True)
class MaskStyle:
    """The kind of masks of a recurrent network.

    noise: how a factor is distributed.
    every_step: a new mask at each time step, instead of one for the whole sequence.
    gates: one mask for all gates of a cell, or one for each.
    alike: all sequences of a batch have the same mask, as if drawn for one network, instead of each
        its own.
    """

    noise: MaskNoise = "bernoulli"
    every_step: bool = False
    gates: Gates = "tied"
    alike: bool = False

    def draw(self, rate: float, x: Tensor, gates: int = 1) -> Tensor | None:
        """A mask for `x` [time, batch, units]: [time or 1, batch, units], None at rate 0.

        With a mask for each of several gates: [time or 1, gates, batch, units].
        """
        if not rate:
            return None
        steps = len(x) if self.every_step else 1
        of_gates = (gates,) if self.gates == "untied" and gates > 1 else ()
        batch, *units = x.shape[1:]
        sequences = 1 if self.alike else batch
        mask = draw_mask((steps, *of_gates, sequences, *units), rate, self.noise, x)
        return mask.expand(steps, *of_gates, batch, *units)


class MaskedLayer(nn.Module, ABC):
    """What the layers here have in common: a style of masks, and their rates."""

    style: MaskStyle

    @property
    @abstractmethod
    def rate(self) -> float:
        """The largest share of units that is dropped anywhere in the layer."""

    @abstractmethod
    def switch_off(self) -> None:
        """Disable dropout, also in training mode."""


@contextmanager
def alike_masks(module: nn.Module) -> Iterator[None]:
    """Inside the block all sequences of a batch get the same masks: those of one network."""
    layers = [layer for layer in module.modules() if isinstance(layer, MaskedLayer)]
    styles = [layer.style for layer in layers]
    for layer in layers:
        layer.style = replace(layer.style, alike=True)
    try:
        yield
    finally:
        for layer, style in zip(layers, styles, strict=True):
            layer.style = style


class MaskedDropout(MaskedLayer, nn.Dropout):
    """Dropout with one mask for all time steps of a sequence.

    time_axis: the axis of an input with three axes or more along which a mask is shared. Other
        inputs have no time, and every number has a factor of its own.
    """

    def __init__(self, p: float, style: MaskStyle, time_axis: int | None) -> None:
        super().__init__(p)
        self.style = style
        self.time_axis = time_axis

    @property
    def rate(self) -> float:
        """The rate of any dropout layer."""
        return self.p

    def switch_off(self) -> None:
        """Set the rate to 0."""
        self.p = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """`x`, masked in training mode."""
        if not self.training or not self.p:
            return x
        shape = list(x.shape)
        has_time = self.time_axis is not None and x.dim() > 2
        if self.time_axis is not None and has_time and not self.style.every_step:
            shape[self.time_axis] = 1
        if self.style.alike and x.dim() > 1:
            shape[1 if has_time and self.time_axis == 0 else 0] = 1
        return x * draw_mask(tuple(shape), self.p, self.style.noise, x)


class MaskedEmbedding(MaskedLayer, nn.Embedding):
    """An embedding that drops word types: a word that is dropped is so throughout its sequence.

    The words are [time, batch, ...], or [batch, time, ...] with `batch_first`; with one axis they
    are one sequence. For each sequence and each word there is one factor, so "the dog and the cat"
    may become "- dog and - cat", never "- dog and the cat" (Gal & Ghahramani 2016).
    """

    def __init__(
        self, layer: nn.Embedding, rate: float, style: MaskStyle, batch_first: bool
    ) -> None:
        super().__init__(
            layer.num_embeddings,
            layer.embedding_dim,
            layer.padding_idx,
            layer.max_norm,
            layer.norm_type,
            layer.scale_grad_by_freq,
            layer.sparse,
            _weight=layer.weight,
        )
        self.weight = layer.weight
        self.word_rate = rate
        self.style = style
        self.batch_first = batch_first
        self.training = layer.training

    @property
    def rate(self) -> float:
        """The share of the words that is dropped."""
        return self.word_rate

    def switch_off(self) -> None:
        """Set the rate to 0."""
        self.word_rate = 0.0

    def forward(self, words: Tensor) -> Tensor:
        """The vectors of the words."""
        vectors = super().forward(words)
        if not self.training or not self.word_rate:
            return vectors
        by_sequence = words[None] if words.dim() < 2 else words
        batch_axis = 0 if words.dim() < 2 or self.batch_first else 1
        by_sequence = by_sequence.movedim(batch_axis, 0)
        sequences = 1 if self.style.alike else len(by_sequence)
        mask = draw_mask(
            (sequences, self.num_embeddings), self.word_rate, self.style.noise, vectors
        ).expand(len(by_sequence), -1)
        factors = mask.gather(1, by_sequence.flatten(1)).view(by_sequence.shape)
        return vectors * factors.movedim(0, batch_axis).view(words.shape)[..., None]
