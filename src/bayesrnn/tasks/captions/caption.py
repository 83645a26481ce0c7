"""Say what the user's own images show, and how sure the run is of each word."""

import math
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from bayesrnn.data.vocabulary import EOS, Vocabulary
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Network
from bayesrnn.options import REQUIRED, option
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.report.heat import wants_colour
from bayesrnn.runs.arguments import (
    CalibrationOptions,
    JsonOptions,
    RunOptions,
    html_option,
    samples_option,
    seed_option,
)
from bayesrnn.runs.output import columns, require_outputs, write_json, write_text
from bayesrnn.tasks.captions.caption_report import captions_page, captions_text
from bayesrnn.tasks.captions.caption_results import (
    CaptionedImage,
    CaptionedWord,
    Captioning,
    DrawnCaption,
    LeftOut,
    RankedCaption,
)
from bayesrnn.tasks.captions.evaluate import DEFAULT_BEAM, WIDEST_BEAM, caption_search
from bayesrnn.tasks.captions.image_network import load_image_network
from bayesrnn.tasks.captions.looking import look_at, require_some
from bayesrnn.tasks.captions.photographs import image_files
from bayesrnn.tasks.captions.search import CaptionSearch
from bayesrnn.tasks.captions.task import TASK
from bayesrnn.tasks.captions.trained import TrainedCaptioner
from bayesrnn.tasks.captions.words import CaptionWordMetrics, each_draw_says, read_captions
from bayesrnn.uncertainty.draws import Draws

#: Images captioned at once: enough to make use of all weights that are fetched for them.
_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class PhotographOptions(RunOptions, CalibrationOptions, JsonOptions):
    """The images, and how captions are searched for."""

    image: tuple[Path, ...] = option(REQUIRED, "image files, or folders of them", metavar="FILE...")
    best: int = option(3, "how many captions of each image to show", ge=1, le=WIDEST_BEAM)
    samples: int = samples_option(
        "draws of the network whose predictions are averaged and compared; 0: the mean weights "
        "alone. All are in memory at once, of bbb each as large as the network (20 MB at the "
        "default size)"
    )
    beam: int = option(
        DEFAULT_BEAM,
        "how many unfinished captions the search pursues; at least as many as are shown",
        ge=1,
        le=WIDEST_BEAM,
    )
    html: Path | None = html_option("the pictures and shaded words")
    seed: int = seed_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.image:
            raise ConfigError("--image has no files; give one or more, or a folder")


def caption_images(options: PhotographOptions) -> tuple[str, int]:
    """What a run says of image files, for the terminal; also as a page and as JSON if asked for.

    Also how many of them cannot be read; those are left out, and each is said.
    """
    html, json = options.html, options.json
    require_outputs(html, json)
    files = image_files(options.image)
    trained = TASK.open_run(options.run, options.checkpoint, options.device)
    network, left_out = load_image_network().to(trained.device), list[LeftOut]()
    alone = len(files) == 1
    seen = list(look_at(files, network, trained.device, left_out, html is not None, alone))
    require_some(seen, files)
    read = [file for few in seen for file in few.files]
    found = captioned(trained, read, torch.cat([few.features for few in seen]), options)
    found = replace(found, left_out=left_out)
    if html is not None:
        write_text(captions_page(found, [one for few in seen for one in few.previews]), html)
    if json is not None:
        write_json(asdict(found), json)
    return captions_text(found, wants_colour(sys.stdout), columns()), len(left_out)


def captioned(
    trained: TrainedCaptioner,
    files: Sequence[Path],
    features: Tensor,
    options: PhotographOptions,
) -> Captioning:
    """The best captions of each image, with the metrics of their words."""
    search = caption_search(trained, max(options.beam, options.best))
    samples, scaling = options.samples, trained.scaling(options.samples, options.uncalibrated)
    draws = Draws(trained.method, trained.net, samples, seeded(options.seed), scaling)
    networks = list(draws.networks())
    vocabulary = trained.vocabulary
    images: list[CaptionedImage] = []
    with progress_bar(len(files), " images", "captioning", delay=1.0) as bar:
        for start in range(0, len(files), _BATCH):
            some = features[start : start + _BATCH]
            ranked = _ranked(networks, search, some, options.best, vocabulary)
            said = [Counter[tuple[int, ...]]() for _ in some]
            if len(networks) > 1:
                said = each_draw_says(networks, search, some)
            images += [
                CaptionedImage(
                    str(file), own[0].confidence, own, _commonest(counts, search, vocabulary)
                )
                for file, own, counts in zip(files[start:][:_BATCH], ranked, said, strict=True)
            ]
            bar.update(len(some))
    return Captioning(
        run=trained.path.name,
        method=trained.config.method,
        step=trained.step,
        seed=options.seed,
        samples=draws.differing(options.samples),
        beam=search.beam,
        images=images,
    )


def _ranked(
    networks: Sequence[Network],
    search: CaptionSearch,
    features: Tensor,
    best: int,
    vocabulary: Vocabulary,
) -> list[list[RankedCaption]]:
    """The best captions of each image, best first.

    The networks read once more what the search found, for the metrics of the words; the
    confidence is one of these. Where a network draws masks as it reads, the search has chosen among
    other masks, and its own metrics would be too good.
    """
    spoken = [found[:best] for found in search.captions(networks, features)]
    owners = [number for number, found in enumerate(spoken) for _ in found]
    captions = [caption.words for found in spoken for caption in found]
    metrics = read_captions(networks, features[owners], captions, search.eos)
    ranked: list[list[RankedCaption]] = [[] for _ in spoken]
    for owner, caption, of_words in zip(owners, captions, metrics, strict=True):
        made = _caption(vocabulary.decode(caption), of_words, search.cuts(caption))
        ranked[owner].append(made)
    return [sorted(found, key=lambda caption: -caption.confidence) for found in ranked]


def _caption(words: Sequence[str], metrics: CaptionWordMetrics, cut: bool) -> RankedCaption:
    rows = zip(
        [*words, EOS],
        *(
            getattr(metrics, name).tolist()
            for name in ("probability", "entropy", "aleatoric", "epistemic")
        ),
        strict=True,
    )
    return RankedCaption(
        text=" ".join(words),
        log_prob=metrics.log_prob,
        confidence=metrics.confidence,
        word_probability=math.exp(metrics.confidence),
        words=[CaptionedWord(*row) for row in rows],
        cut=cut,
    )


def _commonest(
    counts: Counter[tuple[int, ...]], search: CaptionSearch, vocabulary: Vocabulary
) -> list[DrawnCaption]:
    return [
        DrawnCaption(" ".join(vocabulary.decode(words)), draws, search.cuts(words))
        for words, draws in counts.most_common()
    ]
