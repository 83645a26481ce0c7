"""What a reader of texts is about to learn from, in words."""

from torch import Tensor

from bayesrnn.data import Labels, Numbers, Reviews

_SHOWN_LABELS = 5
#: So many different whole numbers, or fewer, may be the names of classes.
_FEW_NUMBERS = 10


def described_reviews(reviews: Reviews, segment: int, may_be_labels: bool) -> str:
    """One line: how many texts there are of each part, cut into what, and what is predicted.

    may_be_labels: whether to say how numbers that look like the names of classes become labels.
    """
    train, valid, test = reviews.train, reviews.valid, reviews.test
    texts = (
        f"{len(train.targets):,} texts to train on, {len(valid.targets):,} to validate with, "
        f"{len(test.targets):,} to test with"
    )
    cut = f"{len(train) + len(valid) + len(test):,} segments of up to {segment:,} words"
    known = f"a vocabulary of {len(reviews.vocabulary):,} words"
    predicted = _predicted(reviews.target, train.targets, may_be_labels)
    return f"{reviews.name}: {texts}; {cut}; {known}; to predict: {predicted}"


def _predicted(target: Numbers | Labels, of_training: Tensor, may_be_labels: bool) -> str:
    if isinstance(target, Labels):
        more = len(target.names) - _SHOWN_LABELS
        shown = ", ".join(target.names[:_SHOWN_LABELS])
        return f"{len(target.names):,} labels: {shown}{f' and {more:,} more' if more > 0 else ''}"
    low, high = of_training.min().item(), of_training.max().item()
    said = f"numbers from {low:g} to {high:g}, mean {target.mean:.3g}"
    different = set(of_training.tolist())
    whole = all(map(float.is_integer, different))
    if may_be_labels and whole and len(different) <= _FEW_NUMBERS:
        said += f"; if these {len(different)} whole numbers name classes, give --target label"
    return said
