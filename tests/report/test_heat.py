"""Shaded words in a terminal and on a page."""

import io
import re

import pytest

from bayesrnn.report.heat import (
    PROBABILITY,
    SENTENCE_END,
    ColourScale,
    HeatWord,
    WordMetric,
    gloss,
    heat_html,
    probability_text,
    prose,
    terminal_legend,
    wants_colour,
)
from bayesrnn.report.text import cells

WORDS = ["it", "is", "世界", "a", "truth", SENTENCE_END, "w" * 300, "said", "\x1b[31mred"]


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def figures():
    probabilities = [0.5, 0.02, 0.004, 0.9, 1e-7, 0.99, 0.0, 0.0002, 0.0008]
    nats = [0.1 * place for place in range(len(WORDS))]
    return [
        WordMetric("probability", probabilities, PROBABILITY),
        WordMetric("epistemic", nats, ColourScale.of(nats)),
    ]


def test_levels_of_probabilities_rise_as_they_fall():
    values = [1.0, 0.03, 0.02, 0.009, 0.002, 0.0009, 0.0002, 0.00009, 0.0]
    assert [PROBABILITY.level(value) for value in values] == [0, 0, 1, 2, 3, 4, 5, 6, 6]
    assert len(PROBABILITY.labels()) == 7


def test_levels_of_nats_leave_half_plain_and_reach_the_last():
    values = [0.1, 0.2, 0.3, 0.4, 2.0]
    scale = ColourScale.of(values)
    assert [scale.level(value) for value in values] == [0, 0, 0, 1, 6]
    assert scale.labels()[:2] == ["to 0.300", "> 0.300"]


def test_figures_that_are_all_the_same_have_no_shade():
    scale = ColourScale.of([0.25] * 4)
    assert scale.level(0.25) == 0
    assert scale.labels() == ["0.250"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1.000"), (0.0123, "0.012"), (0.00123, "0.0012"), (0.00001234, "1e-05"), (0, "0e+00")],
)
def test_probabilities_are_short(value, text):
    assert probability_text(value) == text


def test_prose_wraps_and_ends_lines_with_sentences(figures):
    text = prose(WORDS, figures[0], [1], width=30)
    lines = plain(text).split("\n")
    assert lines[0].endswith(f"truth {SENTENCE_END}")
    assert max(map(cells, lines)) <= 30
    assert "\x1b[1;4;38;5;100mis\x1b[0m" in text
    assert "\x1b[31m" not in text


def test_the_end_of_a_sentence_never_begins_a_line():
    words = [*["abcd"] * 7, SENTENCE_END] * 20
    figure = WordMetric("p", [0.5] * len(words), PROBABILITY)
    for width in range(12, 50):
        lines = prose(words, figure, width=width).split("\n")
        assert not any(line.startswith(SENTENCE_END) for line in lines)
        assert max(map(cells, lines)) <= width


def test_gloss_has_figures_below_words(figures):
    text = gloss(WORDS, figures, colour=False)
    assert "\x1b" not in text
    blocks = [block.split("\n") for block in text.split("\n\n")]
    assert [line.split()[0] for line in blocks[0][1:]] == ["probability", "epistemic"]
    assert blocks[0][0].split() == WORDS[:6]
    assert blocks[0][1].split()[1:] == ["0.500", "0.020", "0.0040", "0.900", "1e-07", "0.990"]
    assert blocks[0][0].index("it") + 2 == blocks[0][1].index("0.500") + 5
    assert all(cells(line) <= 100 for block in blocks for line in block)


def test_colour_changes_nothing_but_the_colour(figures):
    coloured = gloss(WORDS, figures, colour=True)
    assert "\x1b[38;5;231;48;5;124mtruth\x1b[0m" in coloured
    assert plain(coloured) == gloss(WORDS, figures, colour=False)


def test_the_legend_has_every_shade(figures):
    text = terminal_legend(figures[0], colour=True)
    assert text.startswith("probability: ")
    assert text.count("\x1b[0m") == 6
    assert cells(plain(text)) <= 100
    assert terminal_legend(figures[0], colour=False) == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_colour_only_where_it_is_welcome(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not wants_colour(Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_colour(Terminal())


def test_html_is_shaded_escaped_and_without_script(figures):
    words = [HeatWord(word, f'p of "{word}"') for word in WORDS]
    words[3] = HeatWord("<script>&", "'<b>\"", unknown=True)
    html = heat_html(words, figures)
    assert "<script" not in html
    assert "&lt;script&gt;&amp;" in html
    assert "\x1b" not in html
    assert 'class="unknown"' in html
    assert '<span class="s06" title="p of &#34;truth&#34;" tabindex="-1">truth</span>' in html
    assert f">{SENTENCE_END}</span><br>" in html
    assert html.count('type="radio"') == 2
    assert html.count(" checked>") == 1
