"""What is said of a text beside its perplexity: how much of it is unknown, and bits a character."""

import math
from typing import Any, Final

from bayesrnn.data.files import SPLITS
from bayesrnn.report.text import printable
from bayesrnn.runs.evaluation import perplexity_row_text
from bayesrnn.tasks.lm.data import Corpus

#: The share of `<unk>` above which a perplexity says little of the text.
MUCH_UNKNOWN: Final = 0.05

_PURPOSES = ("to train on", "to validate with", "to test on")


def bits_per_character(
    nll: float, tokens: int, characters: int, spelling: float = 0.0
) -> float | None:
    """The bits that a character of a text costs, whatever it was cut into; None without any.

    nll: nats a token, over `tokens` of them. spelling: nats to spell out what is `<unk>`.
    """
    return (nll * tokens + spelling) / math.log(2) / characters if characters else None


def about_corpus(corpus: Corpus) -> list[str]:
    """A line on the size of a corpus and its vocabulary, and warnings."""
    unit = corpus.unit
    sizes = ", ".join(
        f"{len(getattr(corpus, split)):,} {purpose}"
        for split, purpose in zip(SPLITS, _PURPOSES, strict=True)
    )
    shares = " / ".join(f"{corpus.unknown(split):.1%}" for split in SPLITS)
    said = [
        f"{printable(corpus.name)}, in {unit}s: {sizes}; {corpus.types:,} different ones in "
        f"training, {len(corpus.vocabulary):,} in the vocabulary; <unk>: {shares}"
    ]
    if corpus.lacks_spaces:
        said.append(
            "warning: the text is in a script without spaces, so whole sentences were taken for "
            "words; give --tokens character (or bpe)"
        )
    else:
        said += unknown_warning(corpus.unknown("valid"), "the validation text", unit)
    return said


def unknown_warning(share: float, what: str, unit: str) -> list[str]:
    """A warning where more of a text is unknown than a perplexity can bear; else nothing."""
    if share <= MUCH_UNKNOWN:
        return []
    return [
        f"warning: {share:.1%} of the {unit}s of {what} are <unk>, so the perplexity is too good: "
        f"it is that of guessing whether a {unit} is known; compare bits a character, or train with"
        " --tokens character or bpe, a larger --vocabulary-limit or more text"
    ]


def row_text(row: Any) -> str:
    """A row of an evaluation: perplexity, the share of `<unk>` and bits a character."""
    more = "" if row.unknown is None else f", {row.unknown:.1%} of them <unk>"
    bits = row.bits_per_character
    spelt = "" if bits is None else f", {bits:.3f} bits a character"
    return perplexity_row_text(row, row.unit, more) + spelt
