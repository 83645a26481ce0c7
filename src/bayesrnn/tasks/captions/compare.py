"""The captions of several runs side by side, and which differences are more than chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

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
from bayesrnn.uncertainty.bootstrap import Interval, counts, intervals, resampled

#: The scores that captions are compared by.
COMPARED = ("BLEU-4", "CIDEr")

_SPLIT: Final = "test"
_RESAMPLES: Final = 1000
_SLICE: Final = 2**20  # numbers, about, that the resamples worked through at once take
_UNTRAINED: Final = "consensus"


@dataclass(frozen=True)
class CaptionLine:
    """The captions of one run by one kind of inference, or of the baseline.

    scores: on the scale that is shown.
    differences: how far they are above those of the first line; none on that line itself, nor
        where they cannot be worked out.
    """

    run: str
    label: str
    scores: Mapping[str, float]
    images: tuple[str, ...] = ()
    captions: tuple[tuple[str, ...], ...] = ()
    differences: Mapping[str, Interval] = field(default_factory=dict)


def caption_table(lines: Sequence[CaptionLine], notes: Sequence[str]) -> Table:
    """One line for each `CaptionLine`, differences beside the scores where there are any."""
    compared = any(line.differences for line in lines)
    header = ["captions", "by"]
    for name in COMPARED:
        header += [name, "difference"] if compared else [name]
    rows = []
    for line in lines:
        row = [line.run, line.label]
        for name in COMPARED:
            row.append(f"{line.scores[name]:.1f}")
            if compared:
                row.append(_difference(line.differences.get(name)))
        rows.append(row)
    return Table(header, rows, ("captions", "by"), notes)


def _difference(found: Interval | None) -> str:
    """The difference with its interval, called real where that is all on one side of 0."""
    if found is None:
        return "-"
    real = " real" if found.low > 0 or found.high < 0 else ""
    return f"{found.value:+.1f} ({found.low:.1f}, {found.high:.1f}){real}"


def compare_captions(summaries: Sequence[RunSummary]) -> Table | None:
    """The scores of captions that runs of captioners kept; nothing where no run has any.

    Each line is compared with the first one, image by image, where the data is there.
    """
    said = _kept(summaries)
    if not said:
        return None
    notes = [
        f"captions: of the {_SPLIT} images, as `bayesrnn evaluate` kept them; "
        f"scores are times {SCALE}"
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
    first, *rest = scores
    lines = [said[0]]
    for own, theirs in zip(said[1:], rest, strict=True):
        found: dict[str, Interval] = {}
        if first is not None and theirs is not None:
            found = paired_bootstrap(theirs, first, seeded(1), _RESAMPLES)
        scaled = {name: Interval(*(SCALE * n for n in of)) for name, of in found.items()}
        lines.append(replace(own, differences=scaled))
    return lines


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
        scores = {name: float(result["scores"][search][name]) for name in COMPARED}
        return CaptionLine(
            run,
            _label(result, search),
            scores,
            tuple(str(entry["image"]) for entry in entries),
            tuple(tuple(entry[search].split()) for entry in entries),
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
