"""What a captioner says of images: the best captions, how sure it is, where its draws disagree."""

import base64
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bayesrnn.report.heat import (
    SENTENCE_END,
    Figure,
    HeatWord,
    Scale,
    gloss,
    legend,
    probability_text,
    shaded,
    shading,
)
from bayesrnn.report.page import Section, document
from bayesrnn.report.table import Align, Table
from bayesrnn.report.text import escaped, number_text, printable
from bayesrnn.tasks.captions.photographs import Preview

#: Up to so many images are shown in a terminal with the figures of each word.
_DETAILED = 5

#: So many captions of single draws are shown in a terminal.
_DRAWS_SHOWN = 5

#: Words that a captioner chose are probable; these are the shades of those that are less so.
WORD_PROBABILITY = Scale((0.5, 0.3, 0.2, 0.1, 0.05, 0.02), probability=True)

_NO_WORDS = "(no words)"

#: Stands at the end of a caption that was cut.
_CUT = "..."

_CONFIDENCE = (
    "confidence: mean log-probability, in nats, of the words of a caption and of its end "
    f"({SENTENCE_END})"
)


@dataclass(frozen=True)
class CaptionedWord:
    """A word of a caption, or the `<eos>` after the last one, and its figures.

    probability: of this word after those before it, mean over the draws.
    entropy: how open the prediction was, in nats; the sum of aleatoric, which single draws have,
        and epistemic, which comes from their disagreement.
    """

    word: str
    probability: float
    entropy: float
    aleatoric: float
    epistemic: float


@dataclass(frozen=True)
class RankedCaption:
    """A caption, and how sure the run is of it.

    log_prob: the log of the probability of all its words and its end, in nats.
    confidence: the same for a word, on average.
    word_probability: e to the power of the confidence: the geometric mean over the words.
    cut: whether it had not come to its end when it was as long as captions may be.
    """

    text: str
    log_prob: float
    confidence: float
    word_probability: float
    words: Sequence[CaptionedWord]
    cut: bool = False

    @property
    def shown_words(self) -> list[str]:
        """The words and a sign for the end, as they are shown."""
        end = _CUT if self.cut else SENTENCE_END
        return [end if word.word == "<eos>" else printable(word.word) for word in self.words]


@dataclass(frozen=True)
class DrawnCaption:
    """A caption that single draws say when each always takes its likeliest word; how many do.

    cut: as in `RankedCaption`.
    """

    text: str
    draws: int
    cut: bool = False


@dataclass(frozen=True)
class CaptionedImage:
    """What was said of an image.

    confidence: that of the best caption.
    captions: the best ones, best first.
    draws: what single draws say, commonest first; none with fewer than two.
    """

    image: str
    confidence: float
    captions: Sequence[RankedCaption]
    draws: Sequence[DrawnCaption]

    @property
    def best(self) -> RankedCaption:
        """The caption that the run is surest of."""
        return self.captions[0]


@dataclass(frozen=True)
class Captioning:
    """All images, and who captioned them.

    samples: draws that were averaged; 0 is the mean network.
    beam: how many unfinished captions the search pursued.
    """

    run: str
    method: str
    step: int
    seed: int
    samples: int
    beam: int
    images: Sequence[CaptionedImage]

    @property
    def doubted(self) -> bool:
        """Whether there are several draws, which can disagree."""
        return self.samples > 1


def captions_text(found: Captioning, colour: bool, width: int = 100) -> str:
    """All of it for a terminal; of many images only the best caption of each."""
    if len(found.images) > _DETAILED:
        blocks = [summary_line(found), _overview(found).text(width)]
    else:
        scales = scales_of(found)
        figures = figures_of(found.images[0].best.words, scales)
        legends = [legend(figure, colour) for figure in (figures[0], figures[-1])]
        blocks = [summary_line(found), "\n".join(filter(None, legends))]
        for image in found.images:
            blocks += _image_blocks(image, scales, colour, width)
        blocks.append("\n".join(textwrap.fill(note, width) for note in meanings(found)))
    return "\n\n".join(block.rstrip("\n") for block in blocks if block)


def summary_line(found: Captioning) -> str:
    """Who captioned how many images."""
    kinds = {0: "the mean network", 1: "1 draw"}
    who = f"{found.method}, {kinds.get(found.samples, f'{found.samples} draws')}"
    count = len(found.images)
    return f"{who}, beam {found.beam}: {count:,} image{'s' * (count != 1)}"


def confidence_line(image: CaptionedImage) -> str:
    """The one figure of an image, in words."""
    return (
        f"confidence {number_text(image.confidence)} nats a word, a probability of "
        f"{probability_text(image.best.word_probability)} a word"
    )


def scales_of(found: Captioning) -> dict[str, Scale]:
    """The scale of each figure that is shown: one for all images, so that they can be compared."""
    words = [word for image in found.images for word in image.best.words]
    names = ["entropy", "epistemic"] if found.doubted else ["entropy"]
    own = {name: Scale.of([getattr(word, name) for word in words]) for name in names}
    return {"probability": WORD_PROBABILITY, **own}


def figures_of(words: Sequence[CaptionedWord], scales: Mapping[str, Scale]) -> list[Figure]:
    """The figures of some words on scales that are given."""
    return [
        Figure(name, [getattr(word, name) for word in words], scale)
        for name, scale in scales.items()
    ]


def captions_table(image: CaptionedImage) -> Table:
    """The best captions of an image, best first."""
    rows = [
        [
            shown_caption(caption),
            number_text(caption.confidence),
            probability_text(caption.word_probability),
        ]
        for caption in image.captions
    ]
    return Table(["caption", "confidence", "p a word"], rows, ["left", "right", "right"])


def draws_table(image: CaptionedImage, limit: int | None = None) -> Table:
    """What single draws say, commonest first; of more than `limit` captions the rest is counted."""
    shown = image.draws[:limit]
    rest = image.draws[len(shown) :]
    rows = [[shown_caption(said), str(said.draws)] for said in shown]
    notes = []
    if rest:
        draws = sum(said.draws for said in rest)
        notes.append(f"and {len(rest)} more, of {draws} draw{'s' * (draws != 1)}; --json has all")
    return Table(["said by single draws", "draws"], rows, ["left", "right"], notes)


def agreement(image: CaptionedImage) -> str:
    """Where all draws say the same: what that is; else nothing."""
    if len(image.draws) != 1:
        return ""
    said = image.draws[0]
    return f"each of the {said.draws} draws by itself says: {shown_caption(said)}"


def meanings(found: Captioning) -> list[str]:
    """What the figures are."""
    notes = [
        f"{_CONFIDENCE}; p a word: e to the power of it; entropy: how open the prediction of a "
        "word was, in nats",
        *_cut_notes(found),
    ]
    if found.doubted:
        notes.append(
            "epistemic: the part of the entropy that comes from the draws' disagreement; single "
            "draws always take the word that they find likeliest"
        )
    return notes


def shown_caption(caption: RankedCaption | DrawnCaption) -> str:
    """A caption as it is shown."""
    return (printable(caption.text) or _NO_WORDS) + f" {_CUT}" * caption.cut


def _cut_notes(found: Captioning) -> list[str]:
    """What the sign of a caption that was cut means, where there is one."""
    all_said: list[RankedCaption | DrawnCaption] = []
    for image in found.images:
        all_said += [*image.captions, *image.draws]
    note = f"{_CUT} at the end of a caption: it was cut there, as long as captions may be"
    return [note] if any(said.cut for said in all_said) else []


def _image_blocks(
    image: CaptionedImage, scales: Mapping[str, Scale], colour: bool, width: int
) -> list[str]:
    figures = figures_of(image.best.words, scales)
    blocks = [
        f"{printable(image.image)}\n{textwrap.fill(confidence_line(image), width)}",
        gloss(image.best.shown_words, figures, colour, width),
    ]
    if len(image.captions) > 1:
        blocks.append(captions_table(image).text(width))
    if image.draws:
        same = agreement(image)
        table = draws_table(image, _DRAWS_SHOWN).text(width)
        blocks.append(textwrap.fill(same, width) if same else table)
    return blocks


def _overview(found: Captioning) -> Table:
    """One line per image."""
    header = ["image", "caption", "confidence"]
    aligns: list[Align] = ["left", "left", "right"]
    rows = [
        [image.image, shown_caption(image.best), number_text(image.confidence)]
        for image in found.images
    ]
    notes = [_CONFIDENCE, *_cut_notes(found)]
    if found.doubted:
        header.append("draws say")
        aligns.append("right")
        for row, image in zip(rows, found.images, strict=True):
            row.append(str(len(image.draws)))
        notes.append("draws say: how many different captions single draws would give")
    notes.append("--html shows the words and the other captions, --json has all")
    return Table(header, rows, aligns, notes)


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
