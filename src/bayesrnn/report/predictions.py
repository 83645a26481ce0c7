"""What was predicted for texts, as a table."""

from collections.abc import Mapping
from typing import Any

from bayesrnn.report.tables import Align, Table
from bayesrnn.report.words import number_text

#: Labels that have a column of their own; of more, the likeliest are named.
_COLUMNS = 5


def predicted_numbers_table(result: Mapping[str, Any]) -> Table:
    """One line per text: score, interval, how much of the variance is epistemic."""
    interval = f"{100 * result['interval']:.4g}% interval"
    header = ["text", "score", interval, "epistemic", "unknown words"]
    rows = [
        [
            one["text"],
            _figure(one["score"]),
            f"{_figure(one['low'])} to {_figure(one['high'])}",
            f"{one['epistemic_share']:.1%}",
            f"{one['unknown']:.1%}",
        ]
        for one in result["texts"]
    ]
    notes = [
        f"score: mean over {_drawn(result)}; the interval has the noise of the ratings in it",
        "epistemic: the share of the variance on which the draws disagree, and which more data "
        "could reduce",
    ]
    return Table(header, rows, _aligns(header), notes)


def predicted_labels_table(result: Mapping[str, Any]) -> Table:
    """One line per text: label, probabilities, entropy and mutual information."""
    labels = list(result["texts"][0]["probabilities"])
    few = len(labels) <= _COLUMNS
    shown = [f"p({label})" for label in labels] if few else ["probability"]
    header = ["text", "label", *shown, "entropy", "information", "unknown words"]
    rows = []
    for one in result["texts"]:
        of = one["probabilities"]
        probabilities = [of[label] for label in labels] if few else [of[one["label"]]]
        rows.append(
            [
                one["text"],
                one["label"],
                *(number_text(probability) for probability in probabilities),
                number_text(one["entropy"]),
                number_text(one["mutual_information"]),
                f"{one['unknown']:.1%}",
            ]
        )
    notes = [
        f"probabilities: mean over {_drawn(result)}; entropy: of these, in nats",
        "information: the part of the entropy on which the draws disagree, and which more data "
        "could reduce",
    ]
    return Table(header, rows, _aligns(header), notes)


def _drawn(result: Mapping[str, Any]) -> str:
    samples = result["samples"]
    if not samples:
        return "one network, which has no doubts about itself"
    return f"{samples} draw{'s' * (samples > 1)} of the network"


def _aligns(header: list[str]) -> list[Align]:
    return ["left" if title in ("text", "label") else "right" for title in header]


def _figure(value: float) -> str:
    return f"{value:.4g}" if abs(value) >= 10 else number_text(value)
