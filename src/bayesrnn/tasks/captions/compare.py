"""The captions of several runs side by side, and which differences are more than chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from bayesrnn.errors import CorpusError, RunError
from bayesrnn.options import from_toml
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.report.table import Table, distinct_names
from bayesrnn.runs.config import resolve
from bayesrnn.runs.summary import RunSummary
from bayesrnn.tasks.captions.config import RECIPES, CaptionsConfig
from bayesrnn.tasks.captions.data import CaptionedImages, load_flickr8k
from bayesrnn.tasks.captions.scores import SCALE, CaptionScores, bleu, score_captions
from bayesrnn.tasks.captions.selective import rank_correlation
from bayesrnn.uncertainty.bootstrap import Interval, counts, intervals, resampled
from bayesrnn.uncertainty.likelihood import perplexity

#: The scores that captions are compared by, and how each is shown. Perplexity is of the captions
#: that people wrote; Spearman's correlation is that of a caption's confidence and its CIDEr.
PERPLEXITY, BLEU_4, CIDER, SPEARMAN = "perplexity", "BLEU-4", "CIDEr", "Spearman"
COMPARED = {PERPLEXITY: ".2f", BLEU_4: ".1f", CIDER: ".1f", SPEARMAN: ".3f"}

_SPLIT: Final = "test"
_RESAMPLES: Final = 1000
_SLICE: Final = 2**20  # numbers, about, that the resamples worked through at once take
_UNTRAINED: Final = "consensus"


class ImageReadings(NamedTuple):
    """What a run made of each image beside its caption, float64 [images].

    nll, words: of all captions that people wrote of it, in nats, and how many words they have.
    confidence: in the caption that it said.
    """

    nll: Tensor
    words: Tensor
    confidence: Tensor


@dataclass(frozen=True)
class CaptionLine:
    """The captions of one run by one kind of inference, or of the baseline.

    scores: on the scale that is shown; some lines do not have all of them.
    readings: None for the baseline, which reads nothing, and results of earlier versions.
    differences: how far they are above those of the first line; none on that line itself, nor
        where they cannot be worked out.
    """

    run: str
    label: str
    scores: Mapping[str, float]
    images: tuple[str, ...] = ()
    captions: tuple[tuple[str, ...], ...] = ()
    readings: ImageReadings | None = None
    differences: Mapping[str, Interval] = field(default_factory=dict)


def caption_table(lines: Sequence[CaptionLine], notes: Sequence[str]) -> Table:
    """A row for each score of each line, with differences where there are any."""
    compared = any(line.differences for line in lines)
    rows = [
        [name, line.run, line.label, f"{line.scores[name]:{form}}"]
        + ([_difference(line.differences.get(name), form)] if compared else [])
        for name, form in COMPARED.items()
        for line in lines
        if name in line.scores
    ]
    header = ["score", "captions", "by", "value", *(["difference"] if compared else [])]
    return Table(header, rows, ("score", "captions", "by"), notes)


def paired_sentence(table: Table) -> str:
    """How much the captions of each line are better than those of the first, by their CIDEr."""
    if "difference" not in table.header:
        return ""
    rows = [row for row in table.rows if row[0] == CIDER]
    found = [f"{row[1]} ({row[2]}) {row[-1]}" for row in rows if row[-1] != "-"]
    if not found:
        return ""
    first = f"{rows[0][1]} ({rows[0][2]})"
    return (
        f"{CIDER} against {first}, with the 95% interval of a paired bootstrap: {', '.join(found)}."
    )


def _difference(found: Interval | None, form: str) -> str:
    """The difference with its interval, called real where that is all on one side of 0."""
    if found is None:
        return "-"
    real = " real" if found.low > 0 or found.high < 0 else ""
    return f"{found.value:+{form}} ({found.low:{form}}, {found.high:{form}}){real}"


def compare_captions(summaries: Sequence[RunSummary]) -> Table | None:
    """The scores of captions that runs of captioners kept; nothing where no run has any.

    Each line is compared with the first one, image by image, where the data is there.
    """
    said = _kept(summaries)
    if not said:
        return None
    notes = [
        f"captions: of the {_SPLIT} images, as `bayesrnn evaluate` kept them; {BLEU_4} and {CIDER} "
        f"are times {SCALE}; {PERPLEXITY} is of the captions that people wrote; {SPEARMAN}: rank "
        f"correlation of a caption's confidence and its {CIDER}"
    ]
    if len(said) == 1:
        return caption_table(said, notes)
    first = summaries[0]
    file = from_toml(first.config_text, f"{first.path}/config.toml")
    config = resolve(CaptionsConfig, RECIPES, {}, file)
    try:
        images: CaptionedImages = getattr(load_flickr8k(config.data_dir), _SPLIT)
    except CorpusError as error:
        notes.append(f"no differences, because the captions of people are not there: {error}")
        return caption_table(said, notes)
    lines = _compared(said, images)
    if any(line.differences for line in lines):
        notes.append(
            "difference: from the first line, with the 95% interval of a paired bootstrap over "
            f"images ({_RESAMPLES:,} resamples); real: it excludes 0"
        )
    other = [own for own in said if own.images != images.names]
    if other:
        which = ", ".join(f"{own.run} ({own.label})" for own in other)
        notes.append(f"kept captions are of other images: {which}; run `bayesrnn evaluate` again")
    return caption_table(lines, notes)


def _compared(said: Sequence[CaptionLine], images: CaptionedImages) -> list[CaptionLine]:
    """The lines with the differences between each and the first, if both are of these images."""
    scores: list[CaptionScores | None] = []
    with progress_bar(len(said), " results", "scoring") as bar:
        for own in said:
            fits = own.images == images.names
            scores.append(score_captions(own.captions, images.captions) if fits else None)
            bar.update(1)
    lines = [
        own
        if found is None or own.readings is None
        else replace(own, scores={**own.scores, SPEARMAN: _spearman(own.readings, found)})
        for own, found in zip(said, scores, strict=True)
    ]
    first, first_scores = lines[0], scores[0]
    for number, (line, found) in enumerate(zip(lines, scores, strict=True)):
        if number and first_scores is not None and found is not None:
            made = paired_bootstrap(found, first_scores, seeded(1), _RESAMPLES)
            differences = {name: Interval(*(SCALE * n for n in of)) for name, of in made.items()}
            if line.readings is not None and first.readings is not None:
                pair = (line.readings, found), (first.readings, first_scores)
                differences |= paired_readings(*pair, seeded(1), _RESAMPLES)
            lines[number] = replace(line, differences=differences)
    return lines


def _spearman(readings: ImageReadings, scores: CaptionScores) -> float:
    return rank_correlation(readings.confidence, scores.cider)


def paired_readings(
    ours: tuple[ImageReadings, CaptionScores],
    theirs: tuple[ImageReadings, CaptionScores],
    generator: torch.Generator,
    resamples: int = _RESAMPLES,
    level: float = 0.95,
) -> dict[str, Interval]:
    """The differences `ours` - `theirs` of perplexity and Spearman's correlation.

    Images are drawn anew with replacement, the same ones for both, as in `paired_bootstrap`.
    """

    def metrics(readings: ImageReadings, scores: CaptionScores, chosen: Tensor) -> Tensor:
        nll = readings.nll[chosen].sum() / readings.words[chosen].sum()
        correlation = rank_correlation(readings.confidence[chosen], scores.cider[chosen])
        return torch.tensor([perplexity(nll.item()), correlation], dtype=torch.double)

    def differences(places: Tensor) -> Tensor:
        return torch.stack([metrics(*ours, chosen) - metrics(*theirs, chosen) for chosen in places])

    images = len(ours[1])
    values = differences(torch.arange(images)[None])[0]
    drawn = resampled(differences, [images], generator, resamples, max(1, _SLICE // images))
    return dict(zip((PERPLEXITY, SPEARMAN), intervals(values, drawn, level), strict=True))


def paired_bootstrap(
    ours: CaptionScores,
    theirs: CaptionScores,
    generator: torch.Generator,
    resamples: int = _RESAMPLES,
    level: float = 0.95,
) -> dict[str, Interval]:
    """The differences `ours` - `theirs` of all metrics, by the names of `CaptionScores.metrics`.

    Images are drawn anew with replacement, the same ones for both (Koehn 2004). BLEU is worked out
    again from the sums of what was drawn; ROUGE-L and CIDEr are means over images, whose scores
    stay: the document frequencies are those of the whole set.
    """
    images = len(ours)
    pair = [
        torch.cat([one.bleu_counts.double(), one.rouge[:, None], one.cider[:, None]], 1)
        for one in (ours, theirs)
    ]

    def metrics(times: Tensor, columns: Tensor) -> Tensor:
        sums = times @ columns
        return torch.cat([bleu(sums[:, :-2]), sums[:, -2:] / images], 1)

    def differences(places: Tensor) -> Tensor:
        first, second = (metrics(counts(places, images).double(), columns) for columns in pair)
        return first - second

    values = differences(torch.arange(images)[None])[0]
    drawn = resampled(differences, [images], generator, resamples, max(1, _SLICE // images))
    return dict(zip(ours.metrics(), intervals(values, drawn, level), strict=True))


def _kept(summaries: Sequence[RunSummary]) -> list[CaptionLine]:
    """What each captioner said with its mean and averaged over draws; last, without training."""
    found, untrained = [], {}
    for run, summary in zip(distinct_names(summaries), summaries, strict=True):
        for inference in ("mean", "samples"):
            result = summary.result(_SPLIT, inference)
            if result is not None and "captions" in result:
                found.append(_read(result, "beam", run, summary))
        for name, result in summary.results.items():
            if name.startswith(f"{_SPLIT}-{_UNTRAINED}"):
                untrained[name] = _read(result, _UNTRAINED, _UNTRAINED, summary)
    return [*found, *untrained.values()]


def _read(result: Mapping[str, Any], search: str, run: str, summary: RunSummary) -> CaptionLine:
    try:
        entries = result["captions"]
        scores = {name: float(result["scores"][search][name]) for name in (BLEU_4, CIDER)}
        readings = None
        if entries and "confidence" in entries[0]:
            scores[PERPLEXITY] = float(result["perplexity"])
            of_images = (
                [float(entry[name]) for entry in entries] for name in ImageReadings._fields
            )
            readings = ImageReadings(
                *(torch.tensor(each, dtype=torch.double) for each in of_images)
            )
        return CaptionLine(
            run,
            _label(result, search),
            scores,
            tuple(str(entry["image"]) for entry in entries),
            tuple(tuple(entry[search].split()) for entry in entries),
            readings,
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        raise RunError(
            f"a result of {summary.path} does not have the captions that it should; write it again "
            "with `bayesrnn evaluate`"
        ) from None


def _label(result: Mapping[str, Any], search: str) -> str:
    """How the captions were found."""
    if search == _UNTRAINED:
        return f"{result['inference'].removeprefix(search)} neighbours"
    by = result["label"].removeprefix("phi ").removeprefix("averaged over ")
    return f"{'mean' if by.startswith('mean') else by}, beam {result['beam']}"
