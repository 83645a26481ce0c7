"""The page on the uncertainty of runs: tables, charts, and how to read them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from markupsafe import Markup

from bayesrnn.report.axes import even_axis, share_axis
from bayesrnn.report.chart import Reference, Series, draws_chart, line_chart
from bayesrnn.report.in_short import telling_sentence
from bayesrnn.report.page import Section, document, entries
from bayesrnn.report.table import distinct_names
from bayesrnn.report.text import counted, perplexity_text, printable, shortened
from bayesrnn.runs.verdict import LARGEST_SURPRISE
from bayesrnn.tasks.lm.uncertainty_results import DrawLevel, RunUncertainty
from bayesrnn.tasks.lm.uncertainty_tables import (
    all_shifts,
    gap,
    main_shift,
    problem_groups,
    uncertainty_tables,
)

_FEWEST = 20  # words in a bin of the reliability diagram

_GAP = (
    "A run that knows what it does not know has a higher entropy on text unlike the text that it "
    "learnt from: the wider the gap, the better. Solid lines show the gap for the average of so "
    "many drawn networks; the mean network stands apart. Dashed lines and hollow marks "
    "show it with the temperature that fits the validation text best, for the fewest and the most "
    "draws: a gap that is wide only without it comes from flat predictions, not from knowledge. "
    "The scales need not start at 0."
)
_OVERCONFIDENCE = (
    "The entropy of a prediction is how surprised the run expects to be; the negative "
    "log-likelihood (NLL) is how surprised it was. On the line at 0 both agree, above it the run "
    "is too sure of itself, and below it too unsure."
)
_ENTROPY = (
    "The two entropies whose difference is the gap, without temperature: regular text solid, "
    "{shift} text dashed. The dotted line is the entropy of the counts of the words alone. A run "
    "that understands nothing of a text and knows it comes near that line."
)
_RELIABILITY = (
    "Words are sorted by the probability of the most probable word (confidence), and each bin "
    "shows how often that word was right (accuracy). On the dotted diagonal both agree; below it "
    f"the run is too sure. Bins of fewer than {_FEWEST} words are left out, and those on the right "
    "often hold few words. The most draws of each run."
)
_RISK = (
    "If only the least doubtful words are answered, how many of these answers are wrong? From "
    "right to left, more and more doubtful words are withheld; the faster a line falls, the "
    "better the run knows its errors. The most draws of each run."
)
_AUROC = (
    "Take one window of {shift} and one of regular text: how often does the first have the higher "
    "score? At 1 always, at 0.5 it is guessing. Solid lines score by entropy, dashed lines by "
    "mutual information, which needs two different draws; the table has the intervals."
)


#: A metric of a level; None where there is none.
_Metric = Callable[[DrawLevel], float | None]
_Points = list[tuple[float, float | None]]


@dataclass(frozen=True)
class _Group:
    """Runs that can be compared, under the names by which they are shown."""

    names: Sequence[str]
    runs: Sequence[RunUncertainty]
    #: What the titles of their charts end with.
    ending: str

    def raw(self, metric: _Metric, dashed: bool = False) -> list[Series]:
        """A line per run over the numbers of draws."""
        return [
            Series.by_draws(name, ((one.samples, metric(one)) for one in run.levels), dashed)
            for name, run in zip(self.names, self.runs, strict=True)
        ]

    def scaled(self, metric: _Metric) -> list[Series]:
        """The same with temperature: from the fewest to the most draws, dashed."""
        return [
            Series(name, [(one.samples, metric(one)) for one in run.scaled], dashed=True)
            for name, run in zip(self.names, self.runs, strict=True)
        ]

    def most(self, points: Callable[[DrawLevel], _Points], scaled: bool = False) -> list[Series]:
        """A line per run, of its level with the most draws."""
        return [
            Series(
                name,
                [p for one in (run.scaled if scaled else run.levels)[-1:] for p in points(one)],
            )
            for name, run in zip(self.names, self.runs, strict=True)
        ]


def uncertainty_page(runs: Sequence[RunUncertainty]) -> str:
    """One HTML file: the tables, the gap with every number of draws, charts, settings.

    Runs that cannot be compared with each other have charts of their own.
    """
    gaps, calibration, telling = uncertainty_tables(runs, every_level=True)
    groups, shift = _groups(runs), main_shift(runs)

    def charts(draw: Callable[[_Group], Markup]) -> list[Markup]:
        return [draw(group) for group in groups]

    sections = [
        Section("In short", in_short(runs)),
        Section(*gaps, _GAP, *charts(_gap_charts)),
        Section("Expected and real surprise", _OVERCONFIDENCE, *charts(_overconfidence_chart)),
        Section(
            "Entropy of both texts",
            _ENTROPY.format(shift=shift),
            *charts(partial(_entropy_chart, shift=shift)),
        ),
        Section(*calibration, _RELIABILITY, *charts(_reliability_charts)),
        Section("Withholding doubtful answers", _RISK, *charts(_risk_chart)),
        Section(*telling, _AUROC.format(shift=shift), *charts(partial(_auroc_chart, shift=shift))),
        Section("Settings", entries(_settings(runs))),
    ]
    corpora = ", ".join(dict.fromkeys(run.corpus for run in runs))
    return document(f"Uncertainty of {counted(len(runs), 'run')} on {corpora}", sections)


def in_short(runs: Sequence[RunUncertainty]) -> list[str]:
    """Which run tells shifted text best, and how sure each is of itself, by its most draws."""
    shift, lines = main_shift(runs), []
    for group in _groups(runs):
        named = zip(group.names, group.runs, strict=True)
        last = [(name, level) for name, run in named for level in run.levels[-1:]]
        detected = [
            (name, level.shifts[shift].by_entropy.auroc)
            for name, level in last
            if shift in level.shifts
        ]
        if detected:
            lines.append(telling_sentence(detected, f"{shift} text", "regular text"))
        for name, level in last:
            over, found = level.regular.overconfidence, level.regular
            how = "about as surprised as it expects to be"
            if abs(over) > LARGEST_SURPRISE:
                which = "sure" if over > 0 else "unsure"
                how = f"{abs(over):.2f} nats a word too {which} of itself"
            drawn = counted(level.samples, "draw") if level.samples else "the mean network"
            lines.append(
                f"{name} ({drawn}): {how} (expected {found.entropy:.2f}, found {found.nll:.2f}); "
                f"perplexity {perplexity_text(found.perplexity)}."
            )
    return lines


def _groups(runs: Sequence[RunUncertainty]) -> list[_Group]:
    names, groups = distinct_names(runs), problem_groups(runs)
    return [
        _Group(
            [names[place] for place in group],
            [runs[place] for place in group],
            f": {runs[group[0]].corpus}" if len(groups) > 1 else "",
        )
        for group in groups
    ]


def _gap_charts(group: _Group) -> Markup:
    """One per shifted text; all but the first are lower."""
    return Markup("").join(
        draws_chart(
            group.raw(partial(gap, shift=shift)) + group.scaled(partial(gap, shift=shift)),
            f"Entropy gap, {shift} text{group.ending}",
            y_label="gap (nats)",
            solid="raw",
            dashed="scaled",
            height=300 if place else 420,
        )
        for place, shift in enumerate(all_shifts(group.runs))
    )


def _overconfidence_chart(group: _Group) -> Markup:
    def metric(level: DrawLevel) -> float:
        return level.regular.overconfidence

    return draws_chart(
        group.raw(metric) + group.scaled(metric),
        f"NLL minus entropy, regular text{group.ending}",
        y_label="NLL minus entropy (nats)",
        solid="raw",
        dashed="scaled",
        references=[Reference.level("as expected", 0)],
    )


def _entropy_chart(group: _Group, shift: str) -> Markup:
    def shifted(level: DrawLevel) -> float | None:
        return level.shifts[shift].figures.entropy if shift in level.shifts else None

    return draws_chart(
        group.raw(lambda level: level.regular.entropy) + group.raw(shifted, dashed=True),
        f"Entropy, regular and {shift} text{group.ending}",
        y_label="entropy (nats)",
        references=[Reference.level("unigram", group.runs[0].unigram_entropy)],
        solid="regular",
        dashed=shortened(printable(shift), 16),
    )


def _reliability_charts(group: _Group) -> Markup:
    """As it is, and with temperature where that was tried."""

    def points(level: DrawLevel) -> _Points:
        found = level.reliability
        bins = zip(found.confidence, found.accuracy, found.count, strict=True)
        return [(sure, right) for sure, right, count in bins if count >= _FEWEST]

    kinds = [("", False), (" with temperature", True)]
    return Markup("").join(
        line_chart(
            group.most(points, scaled),
            f"Reliability{said}{group.ending}",
            "confidence",
            "accuracy",
            x=share_axis,
            y=share_axis,
            references=[Reference("calibrated", 0, 1)],
            empty="no figures",
            width=640,
            height=480,
        )
        for said, scaled in kinds
        if not scaled or any(run.scaled for run in group.runs)
    )


def _risk_chart(group: _Group) -> Markup:
    def points(level: DrawLevel) -> _Points:
        return list(zip(level.risk_coverage.coverage, level.risk_coverage.risk, strict=True))

    return line_chart(
        group.most(points),
        f"Risk and coverage{group.ending}",
        "share of words answered (coverage)",
        "share of wrong answers (risk)",
        x=share_axis,
        y=even_axis,
        empty="no figures",
    )


def _auroc_chart(group: _Group, shift: str) -> Markup:
    def by_entropy(level: DrawLevel) -> float | None:
        found = level.shifts.get(shift)
        return found.by_entropy.auroc.value if found else None

    def by_information(level: DrawLevel) -> float | None:
        found = level.shifts.get(shift)
        return found.by_information.auroc.value if found and found.by_information else None

    return draws_chart(
        group.raw(by_entropy) + group.raw(by_information, dashed=True),
        f"AUROC, {shift} against regular text{group.ending}",
        y_label="AUROC",
        references=[Reference.level("guessing", 0.5)],
        solid="by entropy",
        dashed="by MI",
    )


def _settings(runs: Sequence[RunUncertainty]) -> Iterator[tuple[str, str, str]]:
    """The name of each run, what it is, and how it was measured."""
    for name, run in zip(distinct_names(runs), runs, strict=True):
        draws = ", ".join(str(level.samples or "mean network") for level in run.levels)
        yield (
            name,
            f"{run.corpus}, {run.method}, {run.settings}",
            f"{run.path} at step {run.step:,}, {run.split} text in "
            f"{counted(run.streams, 'stream')}; draws: {draws}; seed {run.seed} of the benchmark; "
            f"windows of {run.window} words, {run.bootstrap:,} resamples; temperature fitted to at "
            f"most {run.temperature_words:,} words of the validation text",
        )
