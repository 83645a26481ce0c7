"""Captions that need no training, to hold those of a run against."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bayesrnn.data import CaptionedImages, CaptionWords
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
    kept = run / "results" / f"{split}-{inference}.json"
    said = _kept(kept, made_from, images.names)
    if said is None:
        with progress_bar(len(images), " images", "looking at similar images") as bar:
            said = consensus_captions(known, images.features, neighbours, bar.update)
    scores = {
        **score_captions(said, images.captions).figures(),
        **official_scores(official, said, images.captions),
    }
    captions = [
        {"image": name, "consensus": " ".join(words)}
        for name, words in zip(images.names, said, strict=True)
    ]
    return {
        "inference": inference,
        "label": f"consensus of {neighbours} nearest images",
        "samples": 0,
        "scores": {"consensus": scaled(scores)},
        "captions": captions,
        "made_from": made_from,
    }


def _fingerprint(*parts: CaptionedImages) -> str:
    """A hash of all that captions and scores depend on."""
    digest = hashlib.sha256()
    for images in parts:
        digest.update(repr((images.names, images.captions)).encode())
        digest.update(images.features.numpy().tobytes())
    return digest.hexdigest()


def _kept(path: Path, made_from: str, names: Sequence[str]) -> list[CaptionWords] | None:
    """The captions that a result keeps; nothing where there are none that can be used."""
    try:
        content = json.loads(path.read_bytes())
        said = {entry["image"]: tuple(entry["consensus"].split()) for entry in content["captions"]}
        return [said[name] for name in names] if content["made_from"] == made_from else None
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
