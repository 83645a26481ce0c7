"""Texts that are not what a predictor was trained on, made from those that are."""

from dataclasses import replace

import torch
from torch import Tensor

from bayesrnn.tasks.sentiment.segments import Segments


def unknown_share(segments: Segments, unknown: int) -> Tensor:
    """The share of each text's words that are the word numbered `unknown`, [texts]."""
    texts = segments.texts.repeat_interleave(segments.lengths)
    count = len(segments.targets)
    words = torch.bincount(texts, minlength=count)
    return torch.bincount(texts[segments.words == unknown], minlength=count) / words


def shuffled_words(segments: Segments, generator: torch.Generator) -> Segments:
    """The words of each segment in random order."""
    keys = torch.rand(len(segments.words), generator=generator, dtype=torch.double)
    places = torch.arange(len(segments)).repeat_interleave(segments.lengths)
    return replace(segments, words=segments.words[(places + keys).argsort()])


def random_words(segments: Segments, vocabulary: int, generator: torch.Generator) -> Segments:
    """As many words in each segment, each any word of the vocabulary."""
    words = torch.randint(vocabulary, segments.words.shape, generator=generator)
    return replace(segments, words=words)


def unknown_words(segments: Segments, unknown: int, generator: torch.Generator) -> Segments:
    """The same texts, of which four words in five are unknown."""
    replaced = torch.rand(segments.words.shape, generator=generator) < 0.8
    return replace(
        segments, words=segments.words.masked_fill(replaced.to(segments.words.device), unknown)
    )
