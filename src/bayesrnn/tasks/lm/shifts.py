"""Texts that are not what a model was trained on, made from one that is."""

import torch
from torch import Tensor


def reversed_text(text: Tensor) -> Tensor:
    """The whole text backwards, as the paper's benchmark has it."""
    return text.flip(0)


def shuffled_text(text: Tensor, generator: torch.Generator) -> Tensor:
    """The same words in random order: only their frequencies are left."""
    return text[torch.randperm(len(text), generator=generator)]


def text_with_random_words(
    text: Tensor, share: float, vocabulary: int, generator: torch.Generator
) -> Tensor:
    """The text with each word replaced, with probability `share`, by any word of the vocabulary."""
    replaced = torch.rand(len(text), generator=generator) < share
    words = torch.randint(vocabulary, (len(text),), generator=generator)
    return torch.where(replaced, words, text)


def text_with_unknown_words(
    text: Tensor, share: float, unknown: int, generator: torch.Generator
) -> Tensor:
    """The text with each word replaced, with probability `share`, by the one for unknown words."""
    replaced = torch.rand(len(text), generator=generator) < share
    return text.masked_fill(replaced.to(text.device), unknown)
