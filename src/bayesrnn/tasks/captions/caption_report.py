"""What a captioner says of images: the best captions, how sure it is, where its draws disagree."""

import base64
import textwrap
from collections.abc import Mapping, Sequence

from bayesrnn.report.heat import (
    SENTENCE_END,
    ColourScale,
    HeatWord,
    WordMetric,
    entropy_text,
    gloss,
    probability_text,
    shaded,
    shading,
    terminal_legend,
)
from bayesrnn.report.page import Section, document, notes, render
from bayesrnn.report.table import Table
from bayesrnn.report.text import counted, number_text, printable
from bayesrnn.tasks.captions.caption_results import (
    CaptionedImage,
    CaptionedWord,
    Captioning,
    DrawnCaption,
    RankedCaption,
)
from bayesrnn.tasks.captions.photographs import Preview

#: The most images that are shown in a terminal with the metrics of each word.
_DETAILED = 5

#: The most captions of single draws that are shown in a terminal.
_DRAWS_SHOWN = 5

#: Words that a captioner chose are probable; these are the shades of those that are less so.
WORD_PROBABILITY = ColourScale((0.5, 0.3, 0.2, 0.1, 0.05, 0.02), probability=True)

_NO_WORDS = "(no words)"

#: Stands at the end of a caption that was cut.
_CUT = "..."

_CONFIDENCE = (
    "confidence: mean log-probability, in nats, of the words of a caption and of its end "
    f"({SENTENCE_END})"
)


def captions_text(found: Captioning, colour: bool, width: int = 100) -> str:
    """All of it for a terminal; of many images only the best caption of each."""
    if len(found.images) > _DETAILED:
        blocks = [summary_line(found), _overview(found).text(width)]
    else:
        scales = scales_of(found)
        metrics = metrics_of(found.images[0].best.words, scales)
        legends = [terminal_legend(metric, colour) for metric in (metrics[0], metrics[-1])]
        blocks = [summary_line(found), "\n".join(filter(None, legends))]
        for image in found.images:
            blocks += _image_blocks(image, scales, colour, width)
        blocks.append("\n".join(textwrap.fill(note, width) for note in meanings(found)))
    return "\n\n".join(block.rstrip("\n") for block in blocks if block)


def summary_line(found: Captioning) -> str:
    """Who captioned how many images."""
    who = counted(found.samples, "draw") if found.samples else "the mean network"
    return f"{found.method}, {who}, beam {found.beam}: {counted(len(found.images), 'image')}"


def confidence_line(image: CaptionedImage) -> str:
    """The confidence of the best caption as text."""
    return (
        f"confidence {number_text(image.confidence)} nats a word, a probability of "
        f"{probability_text(image.best.word_probability)} a word"
    )


def scales_of(found: Captioning) -> dict[str, ColourScale]:
    """The scale of each metric that is shown: one for all images, so that they can be compared."""
    words = [word for image in found.images for word in image.best.words]
    names = ["entropy", "epistemic"] if found.several_draws else ["entropy"]
    own = {name: ColourScale.of([getattr(word, name) for word in words]) for name in names}
    return {"probability": WORD_PROBABILITY, **own}


def metrics_of(
    words: Sequence[CaptionedWord], scales: Mapping[str, ColourScale]
) -> list[WordMetric]:
    """The metrics of some words on scales that are given."""
    return [
        WordMetric(name, [getattr(word, name) for word in words], scale)
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
    return Table(["caption", "confidence", "p a word"], rows, ("caption",))


def draws_table(image: CaptionedImage, limit: int | None = None) -> Table:
    """What single draws say, commonest first; of more than `limit` captions the rest is counted."""
    shown = image.draws[:limit]
    rest = image.draws[len(shown) :]
    rows = [[shown_caption(said), str(said.draws)] for said in shown]
    draws = counted(sum(said.draws for said in rest), "draw")
    more = [f"and {len(rest)} more, of {draws}; --json has all"] if rest else []
    return Table(["said by single draws", "draws"], rows, ("said by single draws",), more)


def agreement(image: CaptionedImage) -> str:
    """Where all draws say the same: what that is; else nothing."""
    if len(image.draws) != 1:
        return ""
    said = image.draws[0]
    return f"each of the {said.draws} draws by itself says: {shown_caption(said)}"


def meanings(found: Captioning) -> list[str]:
    """What the metrics mean."""
    said = [
        f"{_CONFIDENCE}; p a word: e to the power of it; entropy: how open the prediction of a "
        "word was, in nats",
        *_cut_notes(found),
    ]
    if found.several_draws:
        said.append(
            "epistemic: the part of the entropy that comes from the draws' disagreement; single "
            "draws always take the word that they find likeliest"
        )
    return said


def shown_caption(caption: RankedCaption | DrawnCaption) -> str:
    """A caption as it is shown."""
    return (printable(caption.text) or _NO_WORDS) + f" {_CUT}" * caption.cut


def shown_words(caption: RankedCaption) -> list[str]:
    """The words of a caption and a sign for its end, as they are shown."""
    end = _CUT if caption.cut else SENTENCE_END
    return [end if word.word == "<eos>" else printable(word.word) for word in caption.words]


def _cut_notes(found: Captioning) -> list[str]:
    """What the sign of a caption that was cut means, where there is one."""
    all_said: list[RankedCaption | DrawnCaption] = []
    for image in found.images:
        all_said += [*image.captions, *image.draws]
    note = f"{_CUT} at the end of a caption: it was cut there, as long as captions may be"
    return [note] if any(said.cut for said in all_said) else []


def _image_blocks(
    image: CaptionedImage, scales: Mapping[str, ColourScale], colour: bool, width: int
) -> list[str]:
    metrics = metrics_of(image.best.words, scales)
    blocks = [
        f"{printable(image.image)}\n{textwrap.fill(confidence_line(image), width)}",
        gloss(shown_words(image.best), metrics, colour, width),
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
    rows = [
        [image.image, shown_caption(image.best), number_text(image.confidence)]
        for image in found.images
    ]
    said = [_CONFIDENCE, *_cut_notes(found)]
    if found.several_draws:
        header.append("draws say")
        for row, image in zip(rows, found.images, strict=True):
            row.append(str(len(image.draws)))
        said.append("draws say: how many different captions single draws would give")
    said.append("--html shows the words and the other captions, --json has all")
    return Table(header, rows, ("image", "caption"), said)


def captions_page(found: Captioning, pictures: Sequence[Preview]) -> str:
    """All images, each beside what was said of it; `pictures` are of the same images in turn."""
    scales = scales_of(found)
    articles = [
        _article(image, picture, scales, found.several_draws)
        for image, picture in zip(found.images, pictures, strict=True)
    ]
    said = [*meanings(found), "rest the pointer on a word, or touch it, to see its figures"]
    shown = shading(
        render("tasks/captions/captioned.html.j2", articles=articles),
        metrics_of(found.images[0].best.words, scales),
    )
    section = Section("Captions", summary_line(found), notes(said), shown)
    return document(f"What {found.run} says of images", [section])


def _article(
    image: CaptionedImage, picture: Preview, scales: Mapping[str, ColourScale], several_draws: bool
) -> dict[str, object]:
    """What the page shows of an image."""
    best = image.best
    words = [
        HeatWord(
            shown,
            f"p {probability_text(word.probability)}, "
            f"{entropy_text(word.entropy, word.aleatoric, word.epistemic, several_draws)}",
        )
        for shown, word in zip(shown_words(best), best.words, strict=True)
    ]
    draws, different = sum(said.draws for said in image.draws), len(image.draws)
    commonest = max((said.draws for said in image.draws), default=0)
    unfold = f"{draws} draws by themselves: {different} different captions"
    return {
        "image": image.image,
        "jpeg": base64.b64encode(picture.content).decode("ascii"),
        "picture": picture,
        "caption": shown_caption(best),
        "words": shaded(words, metrics_of(best.words, scales)),
        "confidence": confidence_line(image),
        "captions": captions_table(image),
        "agreement": agreement(image),
        "unfold": f"{unfold}, the commonest from {commonest}" if commonest > 1 else unfold,
        "draws": draws_table(image) if different > 1 else None,
    }
