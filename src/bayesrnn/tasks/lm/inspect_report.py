"""A text as a language model saw it: how probable each word was, and how uncertain."""

import textwrap
from collections.abc import Sequence

from bayesrnn.report.heat import (
    PROBABILITY,
    SENTENCE_END,
    ColourScale,
    HeatWord,
    WordMetric,
    entropy_text,
    gloss,
    heat_html,
    probability_text,
    prose,
    terminal_legend,
)
from bayesrnn.report.page import Section, document, notes
from bayesrnn.report.table import Table
from bayesrnn.report.text import cells, counted, number_text, perplexity_text, printable
from bayesrnn.tasks.lm.inspect_csv import lines_table
from bayesrnn.tasks.lm.inspect_results import InspectedText, InspectedWord

#: The longest text, in words, that is shown with all metrics below each word.
_GLOSSED = 60

#: The most words that are shown; the tables are about all of them.
_ON_SCREEN = 1_000
_ON_PAGE = 20_000

#: Columns of a terminal for the words before one in a table.
_CONTEXT = 22


def inspection_text(text: InspectedText, top: int, colour: bool, width: int = 100) -> str:
    """All of it for a terminal; tables have `top` rows."""
    shown = text.words[:_ON_SCREEN]
    metrics = _metrics(text, shown)
    words = [_bracketed(word) for word in shown]
    running = colour and len(shown) > _GLOSSED
    disputed = _disputed(text, top)
    if running:
        body = prose(words, metrics[0], disputed, width)
        legends = [terminal_legend(metrics[0], colour)]
    else:
        body = gloss(words, metrics, colour, width)
        legends = [terminal_legend(metric, colour) for metric in (metrics[0], metrics[-1])]
    said = _notes(text, "[word]", _ON_SCREEN, "--html shows more, --json has all")
    if running and disputed:
        said.append("underlined: where the draws disagree most")
    explained = [*filter(None, legends), *(textwrap.fill(note, width) for note in said)]
    blocks = [textwrap.fill(summary_line(text), width), body, "\n".join(explained)]
    blocks += [f"{title}\n\n{table.text(width)}" for title, table in _tables(text, top, disputed)]
    return "\n\n".join(block.rstrip("\n") for block in blocks if block)


def lines_text(text: InspectedText, top: int, width: int = 100) -> str:
    """The least expected lines, for a terminal."""
    table = lines_table(text, top).text(width)
    return f"{summary_line(text)}\n\nThe least expected lines\n\n{table}".rstrip("\n")


def inspection_page(text: InspectedText, top: int) -> str:
    """All of it as a page; tables have `top` rows."""
    return document(f"What {text.run} expected", inspection_sections(text, top, "The text"))


def inspection_sections(text: InspectedText, top: int, title: str) -> list[Section]:
    """The shaded words under a title, and the tables."""
    shown = text.words[:_ON_PAGE]
    words = [HeatWord(_sign(word.word), _tooltip(word), not word.known) for word in shown]
    said = _notes(text, "dotted underline", _ON_PAGE, "--json has all")
    meanings = "probability: of the word that came; entropy: how open the prediction was, in nats"
    if text.several_draws:
        meanings += "; epistemic: the part of the entropy that comes from the draws' disagreement"
    said += [meanings, "rest the pointer on a word, or touch it, to see its figures"]
    heat = heat_html(words, _metrics(text, shown))
    tables = _tables(text, top, _disputed(text, top))
    return [
        Section(title, summary_line(text), heat, notes(said)),
        *([Section("The least expected lines", lines_table(text, top))] if text.lines else []),
        *(Section(title, table) for title, table in tables),
    ]


def summary_line(text: InspectedText) -> str:
    """Who read, how much, and the means over the text."""
    who = f"{text.method}, {counted(text.samples, 'draw') if text.samples else 'the mean network'}"
    unknown = sum(not word.known for word in text.words) / len(text.words)
    entropy, aleatoric, epistemic = (
        sum(getattr(word, name) for word in text.words) / len(text.words)
        for name in ("entropy", "aleatoric", "epistemic")
    )
    return (
        f"{who}: {counted(len(text.words), 'word')} ({unknown:.1%} <unk>), perplexity "
        f"{perplexity_text(text.perplexity)}, "
        f"{entropy_text(entropy, aleatoric, epistemic, text.several_draws)}"
    )


def _metrics(text: InspectedText, shown: Sequence[InspectedWord]) -> list[WordMetric]:
    """The metrics that words are shaded by; nats by those that are shown."""
    metrics = [WordMetric("probability", [word.probability for word in shown], PROBABILITY)]
    for name in ("entropy", "epistemic") if text.several_draws else ("entropy",):
        values = [getattr(word, name) for word in shown]
        metrics.append(WordMetric(name, values, ColourScale.of(values)))
    return metrics


def _notes(text: InspectedText, mark: str, limit: int, advice: str) -> list[str]:
    """What has to be said of the words that are shown."""
    said = []
    if len(text.words) > limit:
        said.append(f"the first {limit:,} of {len(text.words):,} words; {advice}")
    if count := sum(not word.known for word in text.words):
        said.append(f"{mark}: not in the vocabulary, read as <unk> ({count:,} of the words)")
    if any(word.word == "<eos>" for word in text.words):
        said.append(f"{SENTENCE_END}: the end of a sentence, which is foreseen like a word")
    return said


def _disputed(text: InspectedText, top: int) -> list[int]:
    """The places where the draws disagree most, worst first."""
    if not text.several_draws:
        return []
    by_epistemic = sorted(range(len(text.words)), key=lambda place: -text.words[place].epistemic)
    return by_epistemic[:top]


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


def _places_table(text: InspectedText, places: Sequence[int], said: Sequence[str] = ()) -> Table:
    """Words with those before them, which the network went by, and their metrics."""
    words = [text.words[place] for place in places]
    columns = {
        "after": [_words_before(text, place) for place in places],
        "word": [_bracketed(word) for word in words],
        "p": [probability_text(word.probability) for word in words],
        "5%..95%": [_interval(word) for word in words],
        "entropy": [number_text(word.entropy) for word in words],
        "epistemic": [number_text(word.epistemic) for word in words],
        "likeliest": [_sign(word.likeliest) for word in words],
        "its p": [probability_text(word.likeliest_probability) for word in words],
    }
    if not text.several_draws:
        del columns["5%..95%"], columns["epistemic"]
    rows = list(zip(*columns.values(), strict=True))
    return Table(list(columns), rows, ("word", "likeliest"), said)


def _next_table(text: InspectedText) -> Table:
    rows = [[_sign(word.word), probability_text(word.probability)] for word in text.next]
    if not text.several_draws:
        return Table(["word", "p"], rows, ("word",))
    for row, word in zip(rows, text.next, strict=True):
        row.append(f"± {probability_text(word.spread or 0.0)}")
    note = "spread: standard deviation of p over the draws"
    return Table(["word", "p", "spread"], rows, ("word",), [note])


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
    entropy = entropy_text(word.entropy, word.aleatoric, word.epistemic, bool(interval))
    unknown = "" if word.known else "; not in the vocabulary, read as <unk>"
    return (
        f"p {probability_text(word.probability)}{f' ({interval})' if interval else ''}, {entropy}; "
        f"likeliest: {_sign(word.likeliest)!r} {probability_text(word.likeliest_probability)}"
        f"{unknown}"
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
