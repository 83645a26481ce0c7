"""Captioned images in a terminal and on a page."""

import base64
import math
import re
from dataclasses import replace

import pytest

from bayesrnn.report.heat import ColourScale
from bayesrnn.report.text import cells
from bayesrnn.tasks.captions.caption_report import (
    WORD_PROBABILITY,
    agreement,
    captions_page,
    captions_text,
    draws_table,
)
from bayesrnn.tasks.captions.caption_results import (
    CaptionedImage,
    CaptionedWord,
    Captioning,
    DrawnCaption,
    RankedCaption,
)
from bayesrnn.tasks.captions.photographs import Preview

PROBABILITIES = (0.9, 0.25, 0.04)


def make_caption(text, samples=20):
    words = [*text.split(), "<eos>"]
    chances = [PROBABILITIES[place % 3] for place in range(len(words))]
    log_prob = sum(map(math.log, chances))
    confidence = log_prob / len(words)
    figures = [
        CaptionedWord(
            word,
            chance,
            2.0 + 0.1 * place,
            *((1.5, 0.5 + 0.1 * place) if samples > 1 else (2.0 + 0.1 * place, 0.0)),
        )
        for place, (word, chance) in enumerate(zip(words, chances, strict=True))
    ]
    return RankedCaption(text, log_prob, confidence, math.exp(confidence), figures)


def make_image(name="dog.jpg", texts=("a dog runs", "a brown dog runs"), said=(), samples=20):
    captions = [make_caption(text, samples) for text in texts]
    draws = [DrawnCaption(text, count) for text, count in said] if samples > 1 else []
    return CaptionedImage(name, captions[0].confidence, captions, draws)


def make(images, samples=20):
    return Captioning("mine", "bbb", 70, 1, samples, 3, images)


DISAGREE = (("a dog runs", 11), ("a cat", 5), ("", 2), ("a horse", 1), ("a man", 1))


def picture(content=b"\xff\xd8\xff picture", width=320, height=200):
    return Preview(content, width, height)


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_everything_is_said_of_an_image():
    found = captions_text(make([make_image(said=DISAGREE)]), colour=False)
    assert found.startswith("bbb, 20 draws, beam 3: 1 image\n\ndog.jpg\nconfidence -1.204 nats")
    # the fourth root of 0.9 * 0.25 * 0.04 * 0.9
    assert "a probability of 0.300 a word" in found
    rows = [line.split() for line in found.splitlines()]
    assert ["a", "dog", "runs", "¶"] in rows
    assert ["probability", "0.900", "0.250", "0.040", "0.900"] in rows
    assert ["entropy", "2.000", "2.100", "2.200", "2.300"] in rows
    assert ["epistemic", "0.500", "0.600", "0.700", "0.800"] in rows
    assert ["a", "dog", "runs", "-1.204", "0.300"] in rows
    assert ["a", "dog", "runs", "11"] in rows
    assert ["(no", "words)", "2"] in rows
    assert "disagreement" in found
    assert "\x1b" not in found


def test_draws_that_agree_need_no_table():
    image = make_image(said=(("a dog runs", 20),))
    assert agreement(image) == "each of the 20 draws by itself says: a dog runs"
    found = captions_text(make([image]), colour=False)
    assert agreement(image) in found
    assert "said by single draws" not in found


def test_many_captions_of_draws_are_counted():
    said = [(f"caption {number}", 20 - number) for number in range(8)]
    table = draws_table(make_image(said=said), limit=5)
    assert len(table.rows) == 5
    assert table.notes == ["and 3 more, of 42 draws; --json has all"]
    assert len(draws_table(make_image(said=said)).rows) == 8


@pytest.mark.parametrize("samples", [0, 1])
def test_without_doubts_none_are_shown(samples):
    found = make([make_image(samples=samples)], samples)
    kind = {0: "the mean network", 1: "1 draw"}[samples]
    text, page = captions_text(found, colour=False), captions_page(found, [picture()])
    assert text.startswith(f"bbb, {kind}, beam 3: 1 image\n")
    for word in ("epistemic", "disagree", "draws"):
        assert word not in text
        assert word not in page.split("</style>")[-1]


@pytest.mark.parametrize("count", [1, 5, 6])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("width", [80, 100])
def test_it_fits_in_a_terminal(count, colour, width):
    long = " ".join(["世界", "ordinary", "\x1b[31mred"] * 10)
    images = [make_image("x" * 200, (long, "a dog"), said=((long, 3), ("", 1)))] * count
    found = plain(captions_text(make(images), colour, width))
    narrow = [line for line in found.split("\n") if not line.startswith("x" * 50)]
    assert max(map(cells, narrow)) <= width
    assert "\x1b" not in found


def test_many_images_get_a_line_each():
    images = [make_image(f"{number}.jpg", said=DISAGREE) for number in range(6)]
    found = captions_text(make(images), colour=False)
    lines = [line.split() for line in found.splitlines()]
    assert ["3.jpg", "a", "dog", "runs", "-1.204", "5"] in lines
    assert "different captions" in found
    assert "epistemic" not in found
    assert "--html shows" in found


def test_colours_go_by_the_scale():
    assert [WORD_PROBABILITY.level(p) for p in (0.9, 0.5, 0.25, 0.04, 0.001)] == [0, 0, 2, 5, 6]
    found = captions_text(make([make_image()]), colour=True)
    assert "\x1b[38;5;130mdog\x1b[0m" in found
    assert found.splitlines()[2].startswith("probability: ")
    without = captions_text(make([make_image()]), colour=False)
    assert plain(found).split("dog.jpg")[1] == without.split("dog.jpg")[1]


def test_the_page_needs_nothing_else(read_page):
    images = [make_image(said=DISAGREE), make_image("cat.png", said=(("a cat", 20),))]
    text = captions_page(make(images), [picture(), picture(b"another", 40, 500)])
    page = read_page(text)
    assert not {"script", "link", "iframe", "object", "image"} & set(page.tags)
    assert not {"href", "srcset", "action"} & {name for name, _ in page.attributes}
    assert not re.findall(r"\w+://|url\(|@import", text)
    assert "prefers-color-scheme: dark" in text
    sources = [value for name, value in page.attributes if name == "src"]
    kind = "data:image/jpeg;base64,"
    assert all(source.startswith(kind) for source in sources)
    contents = [base64.b64decode(source.removeprefix(kind)) for source in sources]
    assert contents == [b"\xff\xd8\xff picture", b"another"]
    assert ("height", "500") in page.attributes
    assert ("alt", "a dog runs") in page.attributes


def test_the_page_shows_everything(read_page):
    text = captions_page(make([make_image(said=DISAGREE)]), [picture()])
    page = read_page(text)
    assert {"img", "article", "details", "table"} <= set(page.tags)
    assert page.tags.count("input") == 3
    assert "What mine says of images" in page.text
    assert "20 draws by themselves: 5 different captions, the commonest from 11" in page.text
    assert "confidence -1.204 nats a word, a probability of 0.300 a word" in page.text
    titles = [value for name, value in page.attributes if name == "title"]
    assert titles[1] == "p 0.250, entropy 2.100 nats = 1.500 aleatoric + 0.600 epistemic"
    assert '<span class="s02 s11 s21" title="p 0.250' not in text, "half of the words stay plain"
    assert '<span class="s02" title="p 0.250' in text


def test_draws_that_all_differ_have_no_commonest(read_page):
    said = [(f"a dog {number}", 1) for number in range(4)]
    page = read_page(captions_page(make([make_image(said=said)]), [picture()]))
    assert "4 draws by themselves: 4 different captions\n" in page.text


def test_images_are_shaded_on_one_scale():
    """A word that is sure in one image is not shaded like an unsure one in another."""
    sure = make_image("sure.jpg")
    calm = replace(
        sure.best, words=[replace(word, entropy=0.1 * word.entropy) for word in sure.best.words]
    )
    images = [replace(sure, captions=[calm]), make_image("unsure.jpg")]
    text = captions_page(make(images), [picture()] * 2)
    assert not re.search(r"s1[1-6]", text.split("<article")[1])
    assert re.search(r"s1[1-6]", text.split("<article")[2])


def test_what_comes_from_outside_is_escaped(read_page):
    bad = "\"><script>alert('&')</script>"
    image = make_image(bad, (f"a {bad}", "b"), said=((bad, 3), ("b", 1)))
    text = captions_page(replace(make([image]), run=bad, method=bad), [picture()])
    page = read_page(text)
    assert "script" not in page.tags
    assert page.text.count(bad) >= 5
    assert "\x1b" not in captions_text(make([make_image("\x1b[2J", ("a \x1b[2J",))]), False)


def test_a_caption_that_was_cut_shows_it(read_page):
    image = make_image(
        texts=("a dog and a dog and", "a dog"), said=(("a cat and", 3), ("a cat", 1))
    )
    cut = replace(
        image,
        captions=[replace(image.best, cut=True), image.captions[1]],
        draws=[replace(image.draws[0], cut=True), image.draws[1]],
    )
    for found in (
        captions_text(make([cut]), colour=False),
        read_page(captions_page(make([cut]), [picture()])).text,
    ):
        assert "a dog and a dog and ..." in found
        assert "a cat and ..." in found
        assert "a dog ..." not in found
        assert "a cat ..." not in found
        assert "... at the end of a caption: it was cut there" in " ".join(found.split())
    rows = [line.split() for line in captions_text(make([cut]), colour=False).splitlines()]
    assert ["a", "dog", "and", "a", "dog", "and", "..."] in rows, "in place of the sign of an end"
    overview = captions_text(make([cut] * 6), colour=False)
    assert overview.count("a dog and a dog and ...") == 6
    assert "it was cut there" in overview
    assert "cut" not in captions_text(make([image]), colour=False)
    assert "cut" not in captions_text(make([image] * 6), colour=False)


def test_the_scales_of_a_page_are_found_once(monkeypatch):
    sizes = []
    of = ColourScale.of
    monkeypatch.setattr(ColourScale, "of", lambda values: sizes.append(len(values)) or of(values))
    captions_page(make([make_image()] * 30), [picture()] * 30)
    assert sizes == [120, 120], "for entropy and for the part of it that is epistemic"


def test_one_caption_is_not_repeated_below():
    found = captions_text(make([make_image(texts=("a dog",))]), colour=False)
    assert "p a word\n" not in found
