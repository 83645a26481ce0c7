"""Commands for captioners alone."""

from pathlib import Path
from typing import Annotated

import tyro

from bayesrnn.runs.arguments import Checkpoint, Device, JsonFile, Run, Seed
from bayesrnn.tasks.captions.caption import caption_images


def caption_photographs(
    run: Run,
    image: Annotated[
        tuple[Path, ...],
        tyro.conf.arg(metavar="FILE...", help="image files, or folders of them"),
    ],
    best: Annotated[
        int, tyro.conf.arg(metavar="N", help="how many captions of each image to show, up to 100")
    ] = 3,
    samples: Annotated[
        int,
        tyro.conf.arg(
            help="draws of the network whose predictions are averaged and compared; 0: the mean "
            "weights alone. All are in memory at once, of bbb each as large as the network (20 MB "
            "at the default size)"
        ),
    ] = 20,
    beam: Annotated[
        int,
        tyro.conf.arg(
            metavar="N",
            help="how many unfinished captions the search pursues, up to 100; at least as many as "
            "are shown",
        ),
    ] = 3,
    html: Annotated[
        Path | None,
        tyro.conf.arg(
            metavar="FILE",
            help="also write a page with the pictures and shaded words; it needs no other file",
            help_behavior_hint="",
        ),
    ] = None,
    json: JsonFile = None,
    checkpoint: Checkpoint = "best",
    seed: Seed = 1,
    device: Device = "auto",
) -> None:
    """Say what images show, how sure the run is of each word, and where its draws disagree.

    For runs of `bayesrnn train captions`. Needs an extra, pip install 'bayesrnn[captions]', which
    brings the image network, and runs it here: no image leaves this machine.

    bayesrnn caption runs/mine --image dog.jpg holidays/ --html page.html
    """
    shown = caption_images(*(run, image, best, samples, beam, html, json, checkpoint, seed, device))
    if str(json) != "-":
        print(shown)
