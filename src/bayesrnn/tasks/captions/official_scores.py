"""METEOR and SPICE of captions, worked out by coco-caption's own programs, which need Java."""

import contextlib
import importlib
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Final

from bayesrnn.errors import ConfigError, MissingExtraError
from bayesrnn.tasks.captions.scores import Words

#: The class of `pycocoevalcap` that works out each score, and where it is.
OFFICIAL: Final = {"METEOR": "meteor.meteor.Meteor", "SPICE": "spice.spice.Spice"}

_HINTS = {
    "METEOR": "see whether `java -version` works",
    "SPICE": "it downloads a parser of some hundred megabytes at its first use, writes beside "
    "itself, and was made for Java 8",
}
_TRIAL = ([("a", "dog")], [[("a", "dog", "runs")]])


def require_official(names: Sequence[str]) -> None:
    """Refuse scores that cannot be worked out here, before the long work, by a trial."""
    official_scores(names, *_TRIAL)


def official_scores(
    names: Sequence[str], candidates: Sequence[Words], references: Sequence[Sequence[Words]]
) -> dict[str, float]:
    """METEOR (Denkowski & Lavie 2014) and SPICE (Anderson et al. 2016) of a set, from 0 to 1.

    names: which of the two.
    """
    known = {n: [" ".join(words) for words in own] for n, own in enumerate(references)}
    said = {n: [" ".join(words)] for n, words in enumerate(candidates)}
    found = {}
    for name in names:
        scorer = _scorer(name)
        try:
            # What it has to tell does not belong between our figures.
            with contextlib.redirect_stdout(sys.stderr):
                found[name] = float(scorer().compute_score(known, said)[0])
        except Exception as error:  # whatever goes wrong on the way to a program in Java and back
            raise ConfigError(
                f"{name} could not be worked out: {type(error).__name__}: {_one_line(error)}; "
                f"{_HINTS[name]}; or leave out --{name.lower()}"
            ) from error
    return found


def _scorer(name: str) -> Any:
    module, _, kind = f"pycocoevalcap.{OFFICIAL[name]}".rpartition(".")
    try:
        scorer = getattr(importlib.import_module(module), kind)
    except ImportError:
        raise MissingExtraError(
            f"--{name.lower()} needs an extra: pip install 'bayesrnn[coco-caption]'"
        ) from None
    if shutil.which("java") is None:
        raise ConfigError(
            f"--{name.lower()} needs Java, but there is no `java` to run; install a Java runtime, "
            "or leave it out"
        )
    return scorer


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
