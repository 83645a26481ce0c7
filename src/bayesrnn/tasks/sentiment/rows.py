"""How the figures of a reader of texts read."""

from collections.abc import Mapping
from typing import Any

from bayesrnn.uncertainty.metrics import INTERVALS

_BY_TEXT = (
    "a text's prediction is the mean over its segments; figures are by text unless they say segment"
)


def reader_figures(row: Mapping[str, Any]) -> str:
    """A row of numbers or of labels, or the bound on their likelihood, as text."""
    if row["inference"] == "bound":
        return (
            f"nll <= {row['nll']:.4f} a segment, {row['kl']:.4f} of it KL "
            f"({row['segments']:,} segments)"
        )
    counted = f"({row['examples']:,} texts, {row['segments']:,} segments)"
    if "error" in row:
        return (
            f"error {row['error']:.2%} (by segment {row['segment_error']:.2%}), nll "
            f"{row['nll']:.4f}, calibration error {row['ece']:.2%}, Brier score "
            f"{row['brier']:.4f} {counted}"
        )
    classes = f", error in 3 classes {row['class_error']:.2%}" if "class_error" in row else ""
    pairs = zip(INTERVALS, row["coverage"], strict=True)
    held = ", ".join(f"{share:.0%}: {found:.1%}" for share, found in pairs)
    return (
        f"rmse {row['rmse']:.4f} (by segment {row['segment_rmse']:.4f}), mean absolute error "
        f"{row['mae']:.4f}{classes}, nll {row['nll']:.4f} {counted}\n"
        f"intervals hold {held}; mean width of the 90% interval {row['width']:.4f}"
    )


def reference_lines(result: Mapping[str, Any]) -> list[str]:
    """What has to be said below the rows."""
    if "constant_rmse" in result:
        constant = (
            f"the mean of the training texts for every text: rmse {result['constant_rmse']:.4f}"
        )
    elif "constant_error" in result:
        constant = (
            "the most frequent label of the training texts for every text: error "
            f"{result['constant_error']:.2%}"
        )
    else:
        return []
    return [_BY_TEXT, f"for comparison, {constant}"]
