"""What networks say of images: the likeliest captions, found by beam search."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from bayesrnn.methods.base import Network
from bayesrnn.uncertainty.average import AverageProbabilities

#: Images captioned at once.
_BATCH = 128


@dataclass(frozen=True)
class SpokenCaption:
    """A caption as numbers of words, without `<eos>`, and its log-probability with it, in nats."""

    words: tuple[int, ...]
    log_prob: float

    @property
    def confidence(self) -> float:
        """The mean log-probability of its words, `<eos>` counted."""
        return self.log_prob / (len(self.words) + 1)


@dataclass(frozen=True)
class CaptionSearch:
    """How to look for captions.

    eos: the number of the word that starts and ends a caption.
    unspoken: numbers of words that are never said, such as `<unk>`.
    beam: how many unfinished captions are pursued; 1 always takes the likeliest word.
    longest: the most words of a caption; what is longer is cut off there.
    """

    eos: int
    unspoken: tuple[int, ...] = ()
    beam: int = 3
    longest: int = 30

    def cuts(self, words: Sequence[int]) -> bool:
        """Whether a caption that was found is as long as can be, so that it had to end there."""
        return len(words) == self.longest

    @torch.no_grad()
    def captions(
        self,
        networks: Sequence[Network],
        features: Tensor,
        advance: Callable[[int], object] | None = None,
    ) -> list[list[SpokenCaption]]:
        """The `beam` best captions found for each image of `features` [images, width].

        The next word's probability is the mean over the networks, each with its own state.
        The best is the one with the highest confidence.
        """
        found: list[list[SpokenCaption]] = []
        for part in torch.split(features, _BATCH):
            found += self._of_batch(networks, part)
            if advance is not None:
                advance(len(part))
        return found

    def _of_batch(self, networks: Sequence[Network], features: Tensor) -> list[list[SpokenCaption]]:
        beams = _Beams.start(networks, features, self.eos)
        finished: list[list[SpokenCaption]] = [[] for _ in features]
        for length in range(self.longest + 1):
            log_probs = beams.next_words(networks)
            log_probs[..., list(self.unspoken)] = -torch.inf
            if length == self.longest:
                log_probs[..., torch.arange(log_probs.shape[-1]) != self.eos] = -torch.inf
            totals = (beams.log_probs[..., None] + log_probs).flatten(1)
            # Of 2 * beam extensions at least `beam` do not end: each caption has one that does.
            best = totals.topk(min(2 * self.beam, totals.shape[1]))
            origin = best.indices // log_probs.shape[-1]
            words = best.indices % log_probs.shape[-1]
            ends = (words == self.eos) & best.values.isfinite()
            for row, rank in ends[:, : self.beam].nonzero().tolist():
                said = beams.words[row, origin[row, rank]].tolist()
                finished[beams.images[row]].append(
                    SpokenCaption(tuple(said), best.values[row, rank].item())
                )
            open_rows = [
                row for row, image in enumerate(beams.images) if len(finished[image]) < self.beam
            ]
            if not open_rows or length == self.longest:
                break
            values = best.values.masked_fill(words == self.eos, -torch.inf)
            kept = values.topk(min(self.beam, values.shape[1]))
            beams = beams.extended(
                torch.tensor(open_rows, device=features.device),
                origin.gather(1, kept.indices),
                words.gather(1, kept.indices),
                kept.values,
            )
        return [
            sorted(captions, key=lambda caption: -caption.confidence)[: self.beam]
            for captions in finished
        ]


@dataclass(frozen=True)
class _Beams:
    """Unfinished captions, as many for each of some images.

    images: the numbers of the images.
    words: [images, beams, length].
    log_probs: [images, beams].
    last: [1, images * beams], the word that was said last.
    given: the other inputs of each network: the image's features or the state so far.
    """

    images: list[int]
    words: Tensor
    log_probs: Tensor
    last: Tensor
    given: list[dict[str, Any]]

    @classmethod
    def start(cls, networks: Sequence[Network], features: Tensor, eos: int) -> "_Beams":
        images = len(features)
        return cls(
            list(range(images)),
            torch.empty(images, 1, 0, dtype=torch.long, device=features.device),
            features.new_zeros(images, 1),
            torch.full((1, images), eos, device=features.device),
            [{"features": features} for _ in networks],
        )

    def next_words(self, networks: Sequence[Network]) -> Tensor:
        """The log-probabilities [images, beams, words] of what comes next; moves on the states."""
        average = AverageProbabilities()
        for number, network in enumerate(networks):
            logits, state = network(self.last, **self.given[number])
            self.given[number] = {"state": state}
            average.add(logits[0])
        # A word that rounding rules out can still be said, so that every caption can end.
        least = torch.finfo(average.mean.dtype).tiny
        return average.mean.clamp_min(least).log().view(*self.log_probs.shape, -1)

    def extended(self, rows: Tensor, origin: Tensor, words: Tensor, log_probs: Tensor) -> "_Beams":
        """The beams of some rows, each made of one of the row's beams and one more word."""
        origin, words, log_probs = origin[rows], words[rows], log_probs[rows]
        column = (rows[:, None] * self.log_probs.shape[1] + origin).flatten()
        said = self.words[rows[:, None], origin]

        def chosen(tensor: Tensor) -> Tensor:
            return tensor[:, column].contiguous()

        return _Beams(
            [self.images[row] for row in rows.tolist()],
            torch.cat([said, words[..., None]], -1),
            log_probs,
            words.view(1, -1),
            [tree_map_only(Tensor, chosen, given) for given in self.given],
        )
