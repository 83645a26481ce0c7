"""The captions of several runs side by side, and which differences are more than chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bayesrnn.evaluation import Difference
from bayesrnn.report.tables import Align, Table

#: The scores that captions are compared by.
COMPARED = ("BLEU-4", "CIDEr")


@dataclass(frozen=True)
class CaptionLine:
    """What one run said in one way: its scores, and how far they are above those of the first line.

    Both are on the scale that is shown. There are no differences on the first line, nor where
    they cannot be worked out.
    """

    run: str
    label: str
    scores: Mapping[str, float]
    differences: Mapping[str, Difference]


def caption_table(lines: Sequence[CaptionLine], notes: Sequence[str]) -> Table:
    """One line for each run and way, differences beside the scores where there are any."""
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
    aligns: list[Align] = ["left" if place < 2 else "right" for place in range(len(header))]
    return Table(header, rows, aligns, notes)


def _difference(found: Difference | None) -> str:
    """The difference with its interval, called real where that is all on one side of 0."""
    if found is None:
        return "-"
    real = " real" if found.low > 0 or found.high < 0 else ""
    return f"{found.value:+.1f} ({found.low:.1f}, {found.high:.1f}){real}"
