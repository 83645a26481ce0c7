"""What stands at the top of a page: a sentence or two that say what came out."""

from collections.abc import Sequence

from bayesrnn.report.text import interval_text, number_text

#: (value, low, high): an AUROC with its interval.
_Auroc = tuple[float, float, float]


def telling_sentence(found: Sequence[tuple[str, _Auroc]], unfamiliar: str, regular: str) -> str:
    """Which of several runs tells unfamiliar inputs from regular ones best, and how well."""
    ranked = sorted(found, key=lambda one: -one[1][0])
    name, best = ranked[0]
    how = f"AUROC {interval_text(*best)}, {_grade(best)}"
    if len(ranked) == 1:
        return f"{name} tells {unfamiliar} from {regular} with {how}."
    other, second = ranked[1]
    said = f"{name} tells {unfamiliar} from {regular} best: {how}; next {other}, "
    apart = "" if best[1] > second[2] else " (the intervals overlap: this may be chance)"
    return f"{said}{interval_text(*second)}{apart}."


def winner_sentence(
    name: str, value: float, other: str, second: float, measure: str, digits: int
) -> str:
    """Which of two runs has the smaller value of a measure, and by how much."""
    if value == second:
        return f"{name} and {other} have the same {measure}, {number_text(value, digits)}"
    less = f"{(second - value) / second:.1%} less" if second else "less"
    return (
        f"{name} wins: {measure} {number_text(value, digits)}, {less} than {other} "
        f"({number_text(second, digits)})"
    )


def _grade(auroc: _Auroc) -> str:
    value, low, high = auroc
    if low <= 0.5 <= high:
        return "no better than guessing as far as can be told"
    if value < 0.5:
        return "the wrong way round"
    return "well" if value >= 0.9 else "often right" if value >= 0.7 else "a little over guessing"
