"""A text as a language model saw it: how probable each word was, and where it was in doubt."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bayesrnn.report.heat import (
    PROBABILITY,
    SENTENCE_END,
    Figure,
    HeatWord,
    Scale,
    gloss,
    heat_html,
    legend,
    probability_text,
    prose,
)
from bayesrnn.report.page import Section, document
from bayesrnn.report.table import Align, Table
from bayesrnn.report.text import cells, escaped, number_text, perplexity_text, printable

#: A text of at most so many words is shown with all figures below each word.
_GLOSSED = 60

#: So many words are shown at most; the tables are about all of them.
_ON_SCREEN = 1_000
_ON_PAGE = 20_000

#: Columns of a terminal for the words before one in a table.
_CONTEXT = 22


@dataclass(frozen=True)
class InspectedWord:
    """A word of the text, as it is shown, and its figures; entropies in nats.

    known: whether the vocabulary has it; if not, the figures are those of `<unk>`.
    low, high: 5% and 95% quantile of the probability over the draws; None with fewer than two.
    """

    word: str
    known: bool
    probability: float
    low: float | None
    high: float | None
    entropy: float
    aleatoric: float
    epistemic: float
    likeliest: str
    likeliest_probability: float


@dataclass(frozen=True)
class NextWord:
    """A word that may follow the text; `spread` is the standard deviation over the draws."""

    word: str
    probability: float
    spread: float | None


@dataclass(frozen=True)
class InspectedText:
    """A whole text as one run saw it.

    samples: draws that were averaged; 0 is the mean network.
    """

    run: str
    method: str
    step: int
    seed: int
    samples: int
    perplexity: float
    words: Sequence[InspectedWord]
    next: Sequence[NextWord]

    @property
    def doubted(self) -> bool:
        """Whether there are several draws, which can disagree."""
        return self.samples > 1


def inspection_text(text: InspectedText, top: int, colour: bool, width: int = 100) -> str:
    """All of it for a terminal; tables have `top` rows."""
    shown = text.words[:_ON_SCREEN]
    figures = _figures(text, shown)
    words = [_bracketed(word) for word in shown]
    running = colour and len(shown) > _GLOSSED
    disputed = _disputed(text, top)
    if running:
        body = prose(words, figures[0], disputed, width)
        legends = [legend(figures[0], colour)]
    else:
        body = gloss(words, figures, colour, width)
        legends = [legend(figure, colour) for figure in (figures[0], figures[-1])]
    notes = _notes(text, "[word]", _ON_SCREEN, "--html shows more, --json has all")
    if running and disputed:
        notes.append("underlined: where the draws disagree most")
    explained = [*filter(None, legends), *(textwrap.fill(note, width) for note in notes)]
    blocks = [textwrap.fill(summary_line(text), width), body, "\n".join(explained)]
    blocks += [f"{title}\n\n{table.text(width)}" for title, table in _tables(text, top, disputed)]
    return "\n\n".join(block.rstrip("\n") for block in blocks if block)


def inspection_page(text: InspectedText, top: int) -> str:
    """All of it as a page; tables have `top` rows."""
    shown = text.words[:_ON_PAGE]
    words = [HeatWord(_sign(word.word), _tooltip(word), not word.known) for word in shown]
    notes = _notes(text, "dotted underline", _ON_PAGE, "--json has all")
    meanings = "probability: of the word that came; entropy: how open the prediction was, in nats"
    if text.doubted:
        meanings += "; epistemic: the part of the entropy that comes from the draws' disagreement"
    notes += [meanings, "rest the pointer on a word to see its figures"]
    said = "".join(f'<p class="note">{escaped(note)}</p>\n' for note in notes)
    summary = f"<p>{escaped(summary_line(text))}</p>\n"
    sections = [Section("The text", summary + heat_html(words, _figures(text, shown)) + said)]
    sections += [
        Section(title, table.html()) for title, table in _tables(text, top, _disputed(text, top))
    ]
    return document(f"What {text.run} expected", sections)


def summary_line(text: InspectedText) -> str:
    """Who read, how much, and the means over the text."""
    kinds = {0: "the mean network", 1: "1 draw"}
    who = f"{text.method}, {kinds.get(text.samples, f'{text.samples} draws')}"
    words = "1 word" if len(text.words) == 1 else f"{len(text.words):,} words"
    entropy, aleatoric, epistemic = (
        number_text(sum(getattr(word, name) for word in text.words) / len(text.words))
        for name in ("entropy", "aleatoric", "epistemic")
    )
    split = f" = {aleatoric} aleatoric + {epistemic} epistemic" if text.doubted else ""
    return (
        f"{who}: {words}, perplexity {perplexity_text(text.perplexity)}, "
        f"entropy {entropy} nats{split}"
    )


def _figures(text: InspectedText, shown: Sequence[InspectedWord]) -> list[Figure]:
    entropy = [word.entropy for word in shown]
    figures = [
        Figure("probability", [word.probability for word in shown], PROBABILITY),
        Figure("entropy", entropy, Scale.of(entropy)),
    ]
    if text.doubted:
        epistemic = [word.epistemic for word in shown]
        figures.append(Figure("epistemic", epistemic, Scale.of(epistemic)))
    return figures


def _notes(text: InspectedText, mark: str, limit: int, advice: str) -> list[str]:
    """What has to be said of the words that are shown."""
    notes = []
    if len(text.words) > limit:
        notes.append(f"the first {limit:,} of {len(text.words):,} words; {advice}")
    unknown = list(dict.fromkeys(word.word for word in text.words if not word.known))
    if unknown:
        count = sum(not word.known for word in text.words)
        notes.append(f"{mark}: not in the vocabulary, read as <unk> ({count:,} of the words)")
    if any(word.word == "<eos>" for word in text.words):
        notes.append(f"{SENTENCE_END}: the end of a sentence, which is foreseen like a word")
    return notes


def _disputed(text: InspectedText, top: int) -> list[int]:
    """The places where the draws disagree most, worst first."""
    if not text.doubted:
        return []
    by_doubt = sorted(range(len(text.words)), key=lambda place: -text.words[place].epistemic)
    return by_doubt[:top]


def _tables(text: InspectedText, top: int, disputed: Sequence[int]) -> list[tuple[str, Table]]:
    tables = []
    if disputed:
        note = (
            "5%..95%: of the draws, by the probability p that they gave the word; epistemic: the "
            "part of the entropy (in nats) that comes from their disagreement"
        )
        tables.append(("Where the draws disagree most", _places_table(text, disputed, [note])))
    by_surprise = sorted(range(len(text.words)), key=lambda place: text.words[place].probability)
    tables.append(("The least expected words", _places_table(text, by_surprise[:top])))
    tables.append(("The likeliest words after the end", _next_table(text)))
    return tables


def _places_table(text: InspectedText, places: Sequence[int], notes: Sequence[str] = ()) -> Table:
    """Words with those before them, which the network went by, and their figures."""
    columns: list[tuple[str, Align, list[str]]] = []
    words = [text.words[place] for place in places]

    def column(title: str, align: Align, cells: Iterable[str]) -> None:
        columns.append((title, align, list(cells)))

    column("after", "right", (_words_before(text, place) for place in places))
    column("word", "left", map(_bracketed, words))
    column("p", "right", (probability_text(word.probability) for word in words))
    if text.doubted:
        column("5%..95%", "right", map(_interval, words))
    column("entropy", "right", (number_text(word.entropy) for word in words))
    if text.doubted:
        column("epistemic", "right", (number_text(word.epistemic) for word in words))
    column("likeliest", "left", (_sign(word.likeliest) for word in words))
    column("its p", "right", (probability_text(word.likeliest_probability) for word in words))
    titles, aligns, texts = zip(*columns, strict=True)
    return Table(titles, list(zip(*texts, strict=True)), aligns, notes)


def _next_table(text: InspectedText) -> Table:
    shown = [[_sign(word.word), probability_text(word.probability)] for word in text.next]
    if not text.doubted:
        return Table(["word", "p"], shown, ["left", "right"])
    rows = [
        [*row, f"± {probability_text(word.spread or 0.0)}"]
        for row, word in zip(shown, text.next, strict=True)
    ]
    note = "spread: standard deviation of p over the draws"
    return Table(["word", "p", "spread"], rows, ["left", "right", "right"], [note])


def _words_before(text: InspectedText, place: int) -> str:
    """The words before a place, as many as there is room for."""
    found = ""
    for word in reversed(text.words[max(0, place - _CONTEXT) : place]):
        longer = f"{_bracketed(word)} {found}".rstrip()
        if cells(longer) > _CONTEXT - 2:
            return f"… {found}".rstrip()
        found = longer
    return found


def _tooltip(word: InspectedWord) -> str:
    interval = _interval(word)
    split = (
        f" = {number_text(word.aleatoric)} aleatoric + {number_text(word.epistemic)} epistemic"
        if interval
        else ""
    )
    unknown = "" if word.known else "; not in the vocabulary, read as <unk>"
    return (
        f"p {probability_text(word.probability)}{f' ({interval})' if interval else ''}, "
        f"entropy {number_text(word.entropy)} nats{split}; likeliest: "
        f"{_sign(word.likeliest)!r} {probability_text(word.likeliest_probability)}{unknown}"
    )


def _interval(word: InspectedWord) -> str:
    """Where the probability lies for most draws; nothing with fewer than two."""
    if word.low is None or word.high is None:
        return ""
    return f"{probability_text(word.low)}..{probability_text(word.high)}"


def _sign(word: str) -> str:
    """The word as it is shown; the end of a sentence has a sign."""
    return SENTENCE_END if word == "<eos>" else printable(word)


def _bracketed(word: InspectedWord) -> str:
    return _sign(word.word) if word.known else f"[{printable(word.word)}]"
