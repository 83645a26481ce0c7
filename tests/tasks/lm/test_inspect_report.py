"""A text as a run saw it, in a terminal and on a page."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from bayesrnn.report.text import cells
from bayesrnn.tasks.lm.inspect_report import inspection_page, inspection_text
from bayesrnn.tasks.lm.inspect_results import Continuation, InspectedText, InspectedWord


def make_word(word, place, samples, known=True):
    spread = (0.01, 0.3) if samples > 1 else (None, None)
    epistemic = 0.01 * (place % 7) if samples > 1 else 0.0
    return InspectedWord(
        word, known, 0.1 / (1 + place), *spread, 3.0 + epistemic, 3.0, epistemic, "the", 0.31
    )


def make_text(words, samples=20, unknown=()):
    return InspectedText(
        run="mine",
        method="bbb",
        step=7,
        seed=1,
        samples=samples,
        perplexity=12.345,
        words=[make_word(w, n, samples, w not in unknown) for n, w in enumerate(words)],
        next=[
            Continuation("<eos>", 0.4, 0.05 if samples > 1 else None),
            Continuation("and", 0.2, 0.001 if samples > 1 else None),
        ],
    )


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def text():
    words = ["it", "is", "a", "zeppelin", ".", "<eos>", "he", "said"]
    return make_text(words, unknown=["zeppelin"])


def test_everything_is_said(text):
    found = inspection_text(text, 3, colour=False)
    first = "bbb, 20 draws: 8 words (12.5% <unk>), perplexity 12.35, entropy 3.026 nats = 3.000"
    assert found.startswith(first)
    assert "[zeppelin]" in found
    assert "read as <unk> (1 of the words)" in found
    assert "¶: the end of a sentence" in found
    disagreement = found.split("disagree most")[1].split("\n")
    assert disagreement[4].split() == [
        *("…", "is", "a", "[zeppelin]", ".", "¶", "he", "0.014", "0.010..0.300", "3.060"),
        *("0.060", "the", "0.310"),
    ]
    least = found.split("least expected words")[1].split("\n")
    assert "said" in least[4]
    following = found.split("after the end")[1].split("\n")
    assert following[4].split() == ["¶", "0.400", "±", "0.050"]
    assert "\x1b" not in found


@pytest.mark.parametrize("samples", [0, 1])
def test_without_doubts_none_are_shown(samples):
    found = inspection_text(make_text(["it", "is"], samples), 3, colour=False)
    kind = {0: "the mean network", 1: "1 draw"}[samples]
    first = f"bbb, {kind}: 2 words (0.0% <unk>), perplexity 12.35, entropy 3.000 nats\n"
    assert found.startswith(first)
    for word in ("epistemic", "aleatoric", "disagree", "spread", "±", "5%"):
        assert word not in found
        assert (
            word not in inspection_page(make_text(["it", "is"], samples), 3).split("</style>")[-1]
        )


@pytest.mark.parametrize("count", [1, 59, 61, 1_200])
@pytest.mark.parametrize("colour", [False, True])
def test_it_fits_in_a_terminal(count, colour):
    words = ["it", "世界" * 30, "x" * 200, "<eos>", "ünïversally"] * (count // 5 + 1)
    found = inspection_text(make_text(words[:count], unknown=["x" * 200]), 5, colour)
    assert max(cells(line) for line in plain(found).split("\n")) <= 100
    assert ("\x1b[" in found) == colour
    assert ("the first 1,000 of 1,200 words" in found) == (count == 1_200)


def test_long_texts_in_colour_are_prose_with_the_disputed_words_underlined():
    found = inspection_text(make_text(["word"] * 100), 4, colour=True)
    assert found.count("\x1b[1;4") == 4
    assert "underlined: where the draws disagree most" in found


def test_the_page_is_whole_and_shows_words_as_words(text):
    hostile = make_word("</span><script>alert(1)</script>", 1, 20, known=False)
    hostile = replace(hostile, likeliest='"><img src=x>')
    evil = replace(text, run="<b>run", words=[*text.words, hostile])
    page = inspection_page(evil, 5)
    tags = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attributes):
            tags.append(tag)

    Tags().feed(page)
    assert not {"script", "img", "b", "a"} & set(tags)
    assert "http" not in page.replace("http-equiv", "")
    assert "What &lt;b&gt;run expected" in page
    assert (
        "p 0.050 (0.010..0.300), entropy 3.010 nats = 3.000 aleatoric + 0.010 epistemic; "
        "likeliest: &#39;the&#39; 0.310" in page
    )
    assert "not in the vocabulary, read as &lt;unk&gt;" in page
    for name in ("probability", "entropy", "epistemic"):
        assert f">{name}</label>" in page


def test_a_very_long_text_does_not_choke_the_page():
    page = inspection_page(make_text(["word"] * 20_001), 5)
    assert page.count(">word</span>") == 20_000
    assert "the first 20,000 of 20,001 words; --json has all" in page
