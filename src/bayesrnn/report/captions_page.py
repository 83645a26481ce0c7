"""Captioned images as a page: each picture with its caption in shaded words."""

import base64
from collections.abc import Mapping, Sequence

from bayesrnn.data import Preview
from bayesrnn.report.captions import (
    CaptionedImage,
    CaptionedWord,
    Captioning,
    agreement,
    captions_table,
    confidence_line,
    draws_table,
    figures_of,
    meanings,
    scales_of,
    shown_caption,
    summary_line,
)
from bayesrnn.report.document import Section, document
from bayesrnn.report.heat import HeatWord, Scale, probability_text, shaded, shading
from bayesrnn.report.words import escaped, number_text

_STYLE = """
.captioned { margin: 1.6rem 0; padding-top: 0.4rem; border-top: 1px solid var(--line); }
.captioned .beside { display: flex; flex-wrap: wrap; gap: 1.2rem; align-items: flex-start; }
.captioned img { max-width: 100%; height: auto; border-radius: 0.3rem; margin-top: 0.6rem; }
.captioned .said { flex: 1 1 24rem; min-width: 0; }
.captioned .heat { font-size: 1.2rem; margin: 0.3rem 0; }
.captioned summary { cursor: pointer; margin: 0.8rem 0 0.3rem; }
"""


def captions_page(found: Captioning, pictures: Sequence[Preview]) -> str:
    """All images, each beside what was said of it; `pictures` are of the same images in turn."""
    scales = scales_of(found)
    articles = "".join(
        _article(image, picture, scales, found.doubted)
        for image, picture in zip(found.images, pictures, strict=True)
    )
    notes = [*meanings(found), "rest the pointer on a word to see its figures"]
    said = "".join(f'<p class="note">{escaped(note)}</p>\n' for note in notes)
    body = f"<style>{_STYLE}</style>\n<p>{escaped(summary_line(found))}</p>\n{said}" + shading(
        articles, figures_of(found.images[0].best.words, scales)
    )
    return document(f"What {found.run} says of images", [Section("Captions", body)])


def _article(
    image: CaptionedImage, picture: Preview, scales: Mapping[str, Scale], doubted: bool
) -> str:
    best = image.best
    heat = [
        HeatWord(shown, _tooltip(word, doubted))
        for shown, word in zip(best.shown_words, best.words, strict=True)
    ]
    encoded = base64.b64encode(picture.content).decode("ascii")
    return (
        f'<article class="captioned">\n<h3>{escaped(image.image)}</h3>\n<div class="beside">\n'
        f'<img src="data:image/jpeg;base64,{encoded}" width="{picture.width}" '
        f'height="{picture.height}" alt="{escaped(shown_caption(best))}">\n'
        f'<div class="said">\n<p class="heat">{shaded(heat, figures_of(best.words, scales))}</p>\n'
        f"<p>{escaped(confidence_line(image))}</p>\n"
        f"{captions_table(image).html()}{_draws(image)}</div>\n</div>\n</article>\n"
    )


def _draws(image: CaptionedImage) -> str:
    """What single draws say: a line where they agree, else a table to be unfolded."""
    if not image.draws:
        return ""
    if same := agreement(image):
        return f"<p>{escaped(same)}</p>\n"
    draws, commonest = sum(said.draws for said in image.draws), image.draws[0].draws
    title = f"{draws} draws by themselves: {len(image.draws)} different captions"
    if commonest > 1:
        title += f", the commonest from {commonest}"
    table = draws_table(image).html()
    return f"<details>\n<summary>{escaped(title)}</summary>\n{table}</details>\n"


def _tooltip(word: CaptionedWord, doubted: bool) -> str:
    split = (
        f" = {number_text(word.aleatoric)} aleatoric + {number_text(word.epistemic)} epistemic"
        if doubted
        else ""
    )
    return (
        f"p {probability_text(word.probability)}, entropy {number_text(word.entropy)} nats{split}"
    )
