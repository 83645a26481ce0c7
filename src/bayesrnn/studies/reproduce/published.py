"""Results on Penn Treebank that others have published, to stand beside ours.

The paper is Fortunato, Blundell & Vinyals (2017), "Bayesian Recurrent Neural Networks"; the sources
of the other results are named with them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PAPER: Final = "Fortunato et al. 2017, table 1"
_TUTORIAL: Final = "TensorFlow's ptb_word_lm, after Zaremba et al. 2014"
_GAL: Final = "Gal & Ghahramani 2016"


@dataclass(frozen=True)
class Published:
    """A row of published perplexities, by the names that our own have: "test-mean" and the like.

    method: ours that it belongs to.
    size: the size of ours that its network has.
    at_most: whether they are upper bounds.
    """

    model: str
    method: str
    size: str
    network: str
    source: str
    perplexities: Mapping[str, float]
    at_most: bool = False


def _row(
    model: str,
    method: str,
    size: str,
    source: str,
    *,
    valid: float,
    test: float,
    dynamic: tuple[float, float] | None = None,
    test_draws: float | None = None,
    at_most: bool = False,
) -> Published:
    """dynamic: of the validation and of the test text."""
    found = {"valid-mean": valid, "test-mean": test}
    if dynamic is not None:
        found |= {"valid-dynamic": dynamic[0], "test-dynamic": dynamic[1]}
    if test_draws is not None:
        found["test-draws"] = test_draws
    return Published(model, method, size, _NETWORKS[size], source, found, at_most)


_NETWORKS: Final = {"small": "lstm 2x200", "medium": "lstm 2x650", "large": "lstm 2x1500"}
_TIED, _UNTIED = "variational LSTM, tied masks", "variational LSTM, untied masks"
_VARIATIONAL: Final = "variational-dropout"

_ROWS: Final = (
    # Listed there among the medium models, but the small one of Zaremba et al. (2014).
    _row("LSTM", "plain", "small", PAPER, valid=120.7, test=114.5),
    _row("LSTM", "plain", "small", _TUTORIAL, valid=121.39, test=115.91),
    _row("LSTM dropout", "dropout", "medium", PAPER, valid=86.2, test=82.1, dynamic=(79.7, 77.1)),
    _row("LSTM dropout", "dropout", "medium", _TUTORIAL, valid=86.16, test=82.07),
    _row("LSTM dropout", "dropout", "large", _TUTORIAL, valid=82.62, test=78.29),
    _row(_TIED, _VARIATIONAL, "medium", PAPER, valid=81.8, test=79.7, test_draws=79.0),
    _row(_UNTIED, _VARIATIONAL, "medium", _GAL, valid=81.9, test=79.7, test_draws=78.6),
    _row(_UNTIED, _VARIATIONAL, "large", _GAL, valid=77.9, test=75.2, test_draws=73.4),
    _row("BRNN", "bbb", "medium", PAPER, valid=78.8, test=75.5, dynamic=(73.4, 70.7)),
    _row(
        "BRNN with sharpening",
        "sharpened",
        "medium",
        PAPER,
        valid=77.8,
        test=74.8,
        dynamic=(72.6, 69.8),
        at_most=True,
    ),
)

#: Perplexity after one epoch at medium size, by method; on which text, the paper does not say.
FIRST_EPOCH: Final = {"bbb": 258.0, "sharpened": 227.0}

#: Training speed as a share of plain training, by method (the paper, section 6.1).
SPEEDS: Final = {"bbb": 0.7, "sharpened": 0.4}

#: The share of the weights that could be dropped without a visible loss (the paper, figure 2).
PRUNED_SHARE: Final = 0.8

#: Entropy gaps in nats a word (the paper, section 6.1.1), by method and number of draws: the
#: mean weights are 0.
GAPS: Final = {
    ("dropout", 0): "below 0.62",
    ("dropout", 10): "below 0.58",
    ("bbb", 0): "just below 0.65",
    ("bbb", 10): "about 0.67",
}


def published_rows(size: str) -> list[Published]:
    """The rows to show beside runs of a size: those of the paper, and all of the same size."""
    return [row for row in _ROWS if row.source == PAPER or row.size == size]
