"""Captions that need no training, to hold those of a run against."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bayesrnn.data import CaptionedImages
from bayesrnn.evaluation import consensus_captions, official_scores, score_captions
from bayesrnn.progress import progress_bar
from bayesrnn.tasks.caption_rows import scaled
from bayesrnn.tasks.rows import Row

#: Of how many nearest images the captions are looked through.
NEIGHBOURS: Final = 60


def consensus_row(
    run: Path,
    known: CaptionedImages,
    split: str,
    images: CaptionedImages,
    official: Sequence[str] = (),
    neighbours: int = NEIGHBOURS,
) -> Row:
    """The scores of captions of similar training images (`consensus_captions`).

    They are slow to find and depend on the data alone, so those that an earlier evaluation of the
    run kept are taken, if they were made from the same images and captions.

    official: further scores, METEOR or SPICE (`official_scores`).
    """
    inference = f"consensus{neighbours}"
    made_from = _fingerprint(known, images)
    kept = _read(run / "results" / f"{split}-{inference}.json")
    if kept.get("made_from") == made_from and {"scores", "captions"} <= kept.keys():
        found = {"scores": kept["scores"], "captions": kept["captions"]}
    else:
        found = _found(known, images, neighbours)
    scores = found["scores"]["consensus"]
    if missing := [name for name in official if name not in scores]:
        said = [entry["consensus"].split() for entry in found["captions"]]
        scores |= scaled(official_scores(missing, said, images.captions))
    return {
        "inference": inference,
        "label": f"consensus of {neighbours} nearest images",
        "samples": 0,
        **found,
        "made_from": made_from,
    }


def _found(known: CaptionedImages, images: CaptionedImages, neighbours: int) -> Row:
    with progress_bar(len(images), " images", "looking at similar images") as bar:
        said = consensus_captions(known, images.features, neighbours, bar.update)
    scores = scaled(score_captions(said, images.captions).figures())
    captions = [
        {"image": name, "consensus": " ".join(words)}
        for name, words in zip(images.names, said, strict=True)
    ]
    return {"scores": {"consensus": scores}, "captions": captions}


def _fingerprint(*parts: CaptionedImages) -> str:
    """A hash of all that captions and scores depend on."""
    digest = hashlib.sha256()
    for images in parts:
        digest.update(repr((images.names, images.captions)).encode())
        digest.update(images.features.numpy().tobytes())
    return digest.hexdigest()


def _read(path: Path) -> dict[str, Any]:
    """The content of a result; nothing where there is none that can be used."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
