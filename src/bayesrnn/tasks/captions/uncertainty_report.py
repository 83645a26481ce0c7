"""The uncertainty of captioners, in tables for the terminal and for a page."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from bayesrnn.report.axes import even_axis, share_axis
from bayesrnn.report.chart import Series, line_chart
from bayesrnn.report.in_short import telling_sentence
from bayesrnn.report.page import Section, document, entries
from bayesrnn.report.table import Table, distinct_names, titled_text
from bayesrnn.report.text import counted, draws_text, interval_text, number_text
from bayesrnn.tasks.captions.uncertainty_results import (
    CaptionLevel,
    CaptionUncertainty,
    SelectiveCaptions,
)

_SHARES = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1)

_WITHHOLDING_NOTES = (
    "{images}; mean: the mean network; by column: the mean CIDEr of the share of the captions that "
    "is kept when the least certain ones are withheld; higher is better",
    "CIDEr is CIDEr-D times 100 of the best caption of a beam of {beam}, with the weights of the "
    "whole set; certain: a high confidence, the mean log-probability of a caption's words, "
    "<eos> counted",
    "area: the mean over every number of kept captions; withholding at random would give what is "
    "in the column 100%, and withholding the captions with the lowest CIDEr what is under oracle; "
    "in brackets: 95% of the bootstrap resamples of the images",
)
_CORRELATION_NOTES = (
    "in nats a word, means over the captions; confidence: the log-probability of the words; MI: "
    "the part of their entropy that comes from draws that disagree",
    "Spearman: correlation of the ranks of confidence and CIDEr, 0: confidence says nothing, 1: "
    "the more certain of two captions is always the better one",
    "gain: area above random, as a share of that of the oracle; 0 is random, 1 is best",
)
_UNKNOWN_NOTES = (
    "{data}: {images}, of a set that shows people and dogs who do something; {unknown_data}: "
    "{unknown} images of everyday scenes with all kinds of things, of which no run has seen any. "
    "Both are photographs from Flickr",
    "by low confidence, or by high MI, where draws differ, of the words of an image's caption; "
    "means in nats a word",
    "AUROC: chance that an image of {unknown_data} scores as more doubtful than one of {data}, 0.5 "
    "is guessing, 1 is best; FPR95: share of {data} images taken for {unknown_data} where 95% of "
    "these are found, lower is better; in brackets: 95% of the bootstrap resamples",
)
_WITHHOLDING = (
    "If only the most certain captions are shown, how good are these? From right to left, more "
    "and more of the least certain ones are withheld; the more a line rises, the better the run "
    "knows which of its captions are bad. Solid lines have the most draws of each run, dashed "
    "lines the fewest, mostly the mean network. The scale need not start at 0, and on the left "
    "there are few captions, so that lines are jagged."
)
_CORRELATION = (
    "A run whose confidence follows the quality of its captions can be trusted to say when it "
    "cannot be trusted. CIDEr of a single image is a noisy judge: people describe the same image "
    "in different words, and a good caption may use those of none of them."
)
_UNKNOWN = (
    "A run should be less certain of images of a kind that it has not learnt from. The features "
    "of all images are by the same image network, which has no doubts of its own here."
)


def caption_uncertainty_text(runs: Sequence[CaptionUncertainty]) -> str:
    """The tables for a terminal."""
    return titled_text(caption_uncertainty_tables(runs))


def caption_uncertainty_tables(runs: Sequence[CaptionUncertainty]) -> list[tuple[str, Table]]:
    """Titles and tables: withholding captions, confidence and CIDEr, detecting other images.

    All runs were measured on the same images. The last table is there where other images were.
    """
    tables = [
        ("CIDEr when the least certain captions are withheld", _withholding_table(runs)),
        ("Does confidence follow CIDEr?", _correlation_table(runs)),
    ]
    shown = next((run for run in runs if run.unknown), None)
    if shown is not None:
        title = f"Telling images of {shown.unknown_data} from those of {shown.data}"
        tables.append((title, _unknown_table(runs, shown)))
    return tables


def _withholding_table(runs: Sequence[CaptionUncertainty]) -> Table:
    header = ["run", "draws", *(f"{share:.0%}" for share in _SHARES), "area", "oracle"]
    rows = [
        [
            name,
            draws_text(level.samples),
            *(number_text(_score_at(level.doubts, share), 1) for share in _SHARES),
            interval_text(*level.doubts.area, digits=1),
            number_text(level.doubts.oracle, 1),
        ]
        for name, level in _levels(runs)
    ]
    notes = [note.format(**_words(runs[0])) for note in _WITHHOLDING_NOTES]
    return Table(header, rows, ("run", "by"), notes)


def _correlation_table(runs: Sequence[CaptionUncertainty]) -> Table:
    header = ["run", "draws", "confidence", "MI", "Spearman", "gain"]
    rows = [
        [
            name,
            draws_text(level.samples),
            number_text(level.confidence),
            number_text(level.information),
            interval_text(*level.doubts.correlation),
            interval_text(*level.doubts.gain),
        ]
        for name, level in _levels(runs)
    ]
    return Table(header, rows, ("run", "by"), _CORRELATION_NOTES)


def _unknown_table(runs: Sequence[CaptionUncertainty], example: CaptionUncertainty) -> Table:
    """Of the runs that were shown other images, as `example` was."""
    header = ["run", "draws", "by", example.data, example.unknown_data, "AUROC", "FPR95"]
    rows = [
        [
            name,
            draws_text(level.samples),
            by,
            number_text(regular),
            number_text(other),
            interval_text(*score.auroc),
            interval_text(*score.fpr95),
        ]
        for name, level in _levels(runs)
        if (found := level.unknown) is not None
        for by, regular, other, score in (
            ("confidence", level.confidence, found.confidence, found.by_confidence),
            ("MI", level.information, found.information, found.by_information),
        )
        if score is not None
    ]
    notes = [note.format(**_words(example)) for note in _UNKNOWN_NOTES]
    return Table(header, rows, ("run", "by"), notes)


def _levels(runs: Sequence[CaptionUncertainty]) -> list[tuple[str, CaptionLevel]]:
    named = zip(distinct_names(runs), runs, strict=True)
    return [(name, level) for name, run in named for level in run.levels]


def _score_at(found: SelectiveCaptions, share: float) -> float | None:
    """The mean score of at least this share of the captions, the smallest that is there."""
    pairs = zip(found.coverage, found.score, strict=True)
    return next((score for coverage, score in pairs if coverage >= share - 1e-9), None)


def _words(run: CaptionUncertainty) -> dict[str, object]:
    return {
        "data": run.data,
        "images": f"{run.images:,} {run.split} images",
        "unknown_data": run.unknown_data,
        "unknown": f"{run.unknown:,}",
        "beam": run.beam,
    }


def caption_uncertainty_page(runs: Sequence[CaptionUncertainty]) -> str:
    """One HTML file: the tables, CIDEr against coverage, settings."""
    withholding, correlation, *unknown = caption_uncertainty_tables(runs)
    sections = [
        Section("In short", in_short(runs)),
        Section(*withholding, _WITHHOLDING, _chart(runs)),
        Section(*correlation, _CORRELATION),
        *(Section(*table, _UNKNOWN) for table in unknown),
        Section("Settings", entries(_settings(runs))),
    ]
    who = counted(len(runs), "captioner")
    return document(f"Uncertainty of {who} on {runs[0].data}", sections)


def in_short(runs: Sequence[CaptionUncertainty]) -> list[str]:
    """Whose confidence follows the quality of its captions best, and who knows strange images."""
    last = [(name, run.levels[-1]) for name, run in zip(distinct_names(runs), runs, strict=True)]
    ranked = sorted(last, key=lambda one: -one[1].doubts.gain.value)
    lines = [
        f"{name}: withholding its least certain captions gains "
        f"{interval_text(*level.doubts.gain)} of what an oracle would."
        for name, level in ranked
    ]
    told = [
        (name, level.unknown.by_confidence.auroc)
        for name, level in last
        if level.unknown is not None
    ]
    if told:
        images = f"images of {runs[0].unknown_data}"
        lines.append(telling_sentence(told, images, f"those of {runs[0].data}"))
    return lines


def _chart(runs: Sequence[CaptionUncertainty]) -> Markup:
    """CIDEr against coverage: the most draws of each run, and the fewest where they differ."""
    named = list(zip(distinct_names(runs), runs, strict=True))
    most = [_line(name, run.levels[-1], False) for name, run in named]
    fewest = [
        _line(name, run.levels[0], True)
        for name, run in named
        if run.levels[0].doubts != run.levels[-1].doubts
    ]
    means = all(run.levels[0].samples == 0 for run in runs)
    return line_chart(
        most + fewest,
        f"CIDEr and coverage: {runs[0].data}, {runs[0].split} images",
        "share of captions kept (coverage)",
        "mean CIDEr of those kept",
        x=share_axis,
        y=even_axis,
        solid="most draws",
        dashed="mean" if means else "fewest draws",
    )


def _line(name: str, level: CaptionLevel, dashed: bool) -> Series:
    return Series(name, list(zip(level.doubts.coverage, level.doubts.score, strict=True)), dashed)


def _settings(runs: Sequence[CaptionUncertainty]) -> Iterator[tuple[str, str, str]]:
    """The name of each run, what it is, and how it was measured."""
    for name, run in zip(distinct_names(runs), runs, strict=True):
        draws = ", ".join(str(level.samples or "mean network") for level in run.levels)
        yield (
            name,
            f"{run.data}, {run.method}, {run.settings}",
            f"{run.path} at step {run.step:,}; {run.images:,} {run.split} images of {run.data}, "
            f"{run.unknown:,} images of {run.unknown_data}; draws: {draws}; seed {run.seed} of the "
            f"measurement; beam {run.beam}, {run.bootstrap:,} resamples",
        )
