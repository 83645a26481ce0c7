"""How the figures of a captioner read."""

from collections.abc import Mapping
from typing import Any

from bayesrnn.tasks.captions.data import FEWEST_TIMES

#: Scores are kept and shown times this, as the field does.
SCALE = 100

#: What a perplexity of captions is of: without it, no two can be compared.
CONVENTION = (
    "perplexity is of captions in lower case without punctuation; words seen fewer than "
    f"{FEWEST_TIMES} times in the training captions are <unk>, and <eos> is counted"
)

_SCORES = (
    f"scores are times {SCALE}, against all captions that people wrote of an image; CIDEr is "
    "CIDEr-D, weighed by these captions"
)


def scaled(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores of a whole set as they are kept and shown."""
    return {name: SCALE * value for name, value in scores.items()}


def score_lines(row: Mapping[str, Any]) -> list[str]:
    """The scores of each way to find captions, a line for each; none in other rows."""
    ways = {"greedy": "greedy: ", "beam": f"beam {row.get('beam')}: "}
    return [
        ways.get(way, "") + ", ".join(f"{name} {value:.1f}" for name, value in own.items())
        for way, own in row.get("scores", {}).items()
    ]


def caption_notes(result: Mapping[str, Any]) -> list[str]:
    """What has to be said below the rows of a captioner; nothing below other rows."""
    return [result["convention"], _SCORES] if "convention" in result else []
