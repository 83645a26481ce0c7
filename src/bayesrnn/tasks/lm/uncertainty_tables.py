"""How well the uncertainty of runs behaves, in tables for the terminal and for a page."""

from collections.abc import Sequence

from bayesrnn.report.table import Table, distinct_names, titled_text
from bayesrnn.report.text import draws_text, interval_text, number_text, perplexity_text
from bayesrnn.tasks.lm.uncertainty_results import DrawLevel, RunUncertainty, TextMetrics

_GAP_NOTES = (
    "regular text, nats a word; mean: the mean network; ppl: perplexity, lower is better; H: mean "
    "entropy of the prediction; NLL-H: 0 is best, above it the run is too sure, below too unsure",
    "gap: H on the {shift} text minus H on the regular one, wider is better; MI: the part of H "
    "that comes from draws that disagree, should be higher on the {shift} text",
    "a flatter model widens the gap for free, therefore the control: T is the temperature that "
    "fits the validation text best (above 1 flattens), gap at T is the gap with it",
)
_CALIBRATION_NOTES = (
    "lower is better in every column; T: 1 for the run as it is, else the temperature that fits "
    "the validation text best",
    "error: share of words that were not the most probable one; ECE: distance of confidence and "
    "accuracy, over 15 bins of equal width; ECE mass: over bins of equally many words",
    "Brier: squared distance of the probabilities from the word that came, 0 to 2; AURC: error "
    "over the words that are kept when the most doubtful are withheld, averaged over all shares",
)
_DETECTION_NOTES = (
    "S is the score to use where the text is at hand: H and MI are of what the run expects, and "
    "where most words are unknown it expects <unk>, of which it is sure",
    "by the mean over a window of H: entropy, MI: information, where draws differ, or S: surprise, "
    "-log p of the words that came, each unknown word one of as many as the vocabulary has; with "
    "the most draws of each run; gap: of that score, shifted minus regular; in brackets: 95% of "
    "the bootstrap resamples",
    "AUROC: chance that a shifted window scores higher than a regular one, 0.5 is guessing, 1 is "
    "best; AUPR: average precision, higher is better, guessing gives the share of shifted windows; "
    "FPR95: share of regular windows taken for shifted where 95% of the shifted are found, lower "
    "is better",
)


def uncertainty_text(runs: Sequence[RunUncertainty]) -> str:
    """The tables for a terminal."""
    return titled_text(uncertainty_tables(runs))


def uncertainty_tables(
    runs: Sequence[RunUncertainty], every_level: bool = False
) -> list[tuple[str, Table]]:
    """Titles and tables: the entropy gap, calibration, detection of shifted text.

    The gap is shown for the fewest and the most draws of each run; with `every_level`, for all.
    """
    windows = " or ".join(str(window) for window in dict.fromkeys(run.window for run in runs))
    shift = main_shift(runs)
    return [
        (f"Entropy gap to the {shift} text", _gap_table(runs, shift, every_level)),
        ("Calibration on the regular text", _calibration_table(runs)),
        (f"Telling shifted from regular text in windows of {windows} words", _shift_table(runs)),
    ]


def all_shifts(runs: Sequence[RunUncertainty]) -> list[str]:
    """The names of the shifted texts, each once; the reversed text first."""
    names = dict.fromkeys(name for run in runs for level in run.levels for name in level.shifts)
    return sorted(names, key=lambda name: name != "reversed")


def main_shift(runs: Sequence[RunUncertainty]) -> str:
    """The shifted text of the gap that is reported first: the reversed one where there is one."""
    return next(iter(all_shifts(runs)), "reversed")


def problem_groups(runs: Sequence[RunUncertainty]) -> list[list[int]]:
    """The places of the runs that solve the same problem: same corpus, same vocabulary."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, run in enumerate(runs):
        groups.setdefault((run.corpus, run.vocabulary), []).append(place)
    return list(groups.values())


def _gap_table(runs: Sequence[RunUncertainty], shift: str, every_level: bool) -> Table:
    short = "rev." if shift == "reversed" else "shift"
    header = ["run", "draws", "ppl", "NLL-H", "H", f"H {short}", "gap"]
    header += ["MI", f"MI {short}", "T", "gap at T"]
    rows = []
    for name, run in zip(distinct_names(runs), runs, strict=True):
        scaled = {level.samples: level for level in run.scaled}
        for level in run.levels if every_level else _ends(run.levels):
            control, there = scaled.get(level.samples), level.shifts.get(shift)
            rows.append(
                [
                    name,
                    draws_text(level.samples),
                    perplexity_text(level.regular.perplexity),
                    number_text(level.regular.overconfidence),
                    number_text(level.regular.entropy),
                    number_text(there.figures.entropy if there else None),
                    number_text(gap(level, shift)),
                    number_text(_information(level, level.regular)),
                    number_text(_information(level, there.figures) if there else None),
                    number_text(control.temperature if control else None),
                    number_text(gap(control, shift) if control else None),
                ]
            )
    notes = [note.format(shift=shift) for note in _GAP_NOTES]
    firsts = [runs[group[0]] for group in problem_groups(runs)]
    said = ", ".join(f"{number_text(run.unigram_entropy, 4)} ({run.corpus})" for run in firsts)
    notes.append(f"for comparison, the entropy of the counts of the words alone (unigram): {said}")
    return Table(header, rows, ("run",), [*notes, *_problem_notes(runs)])


def _calibration_table(runs: Sequence[RunUncertainty]) -> Table:
    header = ["run", "draws", "T", "error", "ECE", "ECE mass", "Brier", "AURC"]
    rows = [
        [
            name,
            draws_text(level.samples),
            "1" if level is one else number_text(level.temperature),
            number_text(level.error, 4),
            number_text(level.reliability.error, 4),
            number_text(level.reliability_equal_mass.error, 4),
            number_text(level.brier, 4),
            number_text(level.risk_coverage.area, 4),
        ]
        for name, run in zip(distinct_names(runs), runs, strict=True)
        for one in _ends(run.levels)
        for level in (one, *(scaled for scaled in run.scaled if scaled.samples == one.samples))
    ]
    return Table(header, rows, ("run",), [*_CALIBRATION_NOTES, *_problem_notes(runs)])


def _shift_table(runs: Sequence[RunUncertainty]) -> Table:
    header = ["run", "shift", "by", "gap", "AUROC", "AUPR", "FPR95"]
    rows = [
        [
            name,
            shift,
            score,
            number_text(gap),
            interval_text(*detected.auroc),
            interval_text(*detected.aupr),
            interval_text(*detected.fpr95),
        ]
        for name, run in zip(distinct_names(runs), runs, strict=True)
        for level in run.levels[-1:]
        for shift, found in level.shifts.items()
        for score, gap, detected in (
            ("H", found.gap, found.by_entropy),
            ("MI", found.figures.information - level.regular.information, found.by_information),
            ("S", found.surprise, found.by_surprise),
        )
        if detected is not None
    ]
    notes = [*_DETECTION_NOTES, *_unknown_notes(runs), *_problem_notes(runs)]
    return Table(header, rows, ("run", "shift", "by"), notes)


def gap(level: DrawLevel, shift: str) -> float | None:
    """The entropy gap to a shifted text; None where it was not read."""
    found = level.shifts.get(shift)
    return found.gap if found else None


def _ends(levels: Sequence[DrawLevel]) -> Sequence[DrawLevel]:
    """The first and the last level, or the only one."""
    return [*levels[:1], *levels[1:][-1:]]


def _information(level: DrawLevel, metrics: TextMetrics) -> float | None:
    """The mutual information where there is one: from two different draws on."""
    differ = all(shift.by_information for shift in level.shifts.values())
    return metrics.information if level.samples > 1 and differ else None


def _unknown_notes(runs: Sequence[RunUncertainty]) -> list[str]:
    """The shares of unknown words: part of a shift may be those."""
    shares: dict[str, float] = {}
    for run in runs:
        for name, share in run.unknown.items():
            shares[name] = max(share, shares.get(name, 0.0))
    said = [f"{name} {share:.1%}" for name, share in shares.items()]
    return [f"words that are unknown (<unk>): {', '.join(said)}"] if said else []


def _problem_notes(runs: Sequence[RunUncertainty]) -> list[str]:
    groups, names = problem_groups(runs), distinct_names(runs)
    if len(groups) == 1:
        return []
    parts = [f"{runs[group[0]].corpus} ({', '.join(names[i] for i in group)})" for group in groups]
    return [
        "the runs are on different corpora or vocabularies, and can be compared only within one: "
        f"{'; '.join(parts)}"
    ]
