"""The page on what captioners know of their own doubts: tables, charts, how to read them."""

from collections.abc import Sequence

from bayesrnn.evaluation.caption_doubts import CaptionLevel, CaptionUncertainty
from bayesrnn.report.axes import even_axis, share_axis
from bayesrnn.report.caption_uncertainty import caption_uncertainty_tables
from bayesrnn.report.charts import Series, line_chart
from bayesrnn.report.document import Section, document
from bayesrnn.report.tables import distinct_names
from bayesrnn.report.words import escaped

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


def caption_uncertainty_page(runs: Sequence[CaptionUncertainty]) -> str:
    """One HTML file: the tables, CIDEr against coverage, settings."""
    withholding, correlation, *unknown = caption_uncertainty_tables(runs)
    sections = [
        Section(withholding[0], withholding[1].html() + _said(_WITHHOLDING) + _chart(runs)),
        Section(correlation[0], correlation[1].html() + _said(_CORRELATION)),
        *(Section(title, table.html() + _said(_UNKNOWN)) for title, table in unknown),
        Section("Settings", _settings(runs)),
    ]
    counted = "1 captioner" if len(runs) == 1 else f"{len(runs)} captioners"
    return document(f"Uncertainty of {counted} on {runs[0].data}", sections)


def _chart(runs: Sequence[CaptionUncertainty]) -> str:
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


def _settings(runs: Sequence[CaptionUncertainty]) -> str:
    return "".join(
        f"<h3>{escaped(name)}</h3>\n<p>{escaped(f'{run.data}, {run.method}, {run.settings}')}</p>"
        f'\n<p class="note">{escaped(_origin(run))}</p>\n'
        for name, run in zip(distinct_names(runs), runs, strict=True)
    )


def _origin(run: CaptionUncertainty) -> str:
    draws = ", ".join(str(level.samples or "mean network") for level in run.levels)
    return (
        f"{run.path} at step {run.step:,}; {run.images:,} {run.split} images of {run.data}, "
        f"{run.unknown:,} images of {run.unknown_data}; draws: {draws}; seed {run.seed} of the "
        f"measurement; beam {run.beam}, {run.bootstrap:,} resamples"
    )


def _said(text: str) -> str:
    return f"<p>{escaped(text)}</p>\n"
