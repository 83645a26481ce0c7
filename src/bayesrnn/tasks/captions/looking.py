"""Look at image files, a few at a time; those that cannot be read are left out, and said."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from bayesrnn.errors import CorpusError
from bayesrnn.progress import progress_bar, say
from bayesrnn.report.text import counted
from bayesrnn.tasks.captions.caption_results import LeftOut
from bayesrnn.tasks.captions.image_network import ImageNetwork
from bayesrnn.tasks.captions.photographs import Photograph, Preview, read_photograph

#: Images looked at at once: what the image network makes of more leaves the cache.
_AT_ONCE = 4


class Seen(NamedTuple):
    """The features [images, width] of image files that could be read, and previews if wanted."""

    files: list[Path]
    features: Tensor
    previews: list[Preview]


def look_at(
    files: Sequence[Path],
    network: ImageNetwork,
    device: torch.device,
    left_out: list[LeftOut],
    with_previews: bool = False,
    alone: bool = False,
) -> Iterator[Seen]:
    """What `network` says of image files, a few at a time; their pixels are not kept.

    Those that cannot be read go to `left_out`; of an image that was asked for `alone` that is an
    error.
    """
    with progress_bar(len(files), " images", "reading", delay=1.0) as bar:
        for start in range(0, len(files), _AT_ONCE):
            read, images = list[Path](), list[Photograph]()
            for file in files[start:][:_AT_ONCE]:
                bar.update(1)
                try:
                    images.append(read_photograph(file, with_previews))
                except CorpusError as error:
                    if alone:
                        raise
                    left_out.append(LeftOut(str(file), str(error)))
                    say(f"left out: {error}")
                else:
                    read.append(file)
            if images:
                features = network(torch.stack([one.pixels for one in images]).to(device))
                previews = [one.preview for one in images if one.preview is not None]
                yield Seen(read, features, previews)


def require_some(seen: Sequence[object], files: Sequence[Path]) -> None:
    """Refuse to go on without a single image."""
    if not seen:
        raise CorpusError(f"none of the {len(files)} images can be read; the reasons are above")


def require_none(left_out: int, rest: str) -> None:
    """End with an error where images were left out; `rest` says that all else is there."""
    if left_out:
        raise CorpusError(
            f"{counted(left_out, 'image')} could not be read and left out, as said above; {rest}"
        )
