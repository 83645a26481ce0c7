"""The tab of captions: what an image shows, how sure each word is, and what single draws say."""

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from bayesrnn.options import CheckedOptions, option
from bayesrnn.runs.arguments import seed_option
from bayesrnn.runs.tab import Question, Tab, about_draws
from bayesrnn.tasks.captions.caption import PhotographOptions, captioned
from bayesrnn.tasks.captions.evaluate import WIDEST_BEAM
from bayesrnn.tasks.captions.image_network import ImageNetwork, load_image_network
from bayesrnn.tasks.captions.photographs import photograph_of
from bayesrnn.tasks.captions.task import TASK
from bayesrnn.tasks.captions.trained import TrainedCaptioner

#: Bytes and pixels of an image, at most.
MOST_BYTES: Final = 10_000_000
MOST_PIXELS: Final = 40_000_000


@dataclass(frozen=True, kw_only=True)
class CaptionOptions(CheckedOptions):
    """How captions are searched for."""

    samples: int = option(5, "draws of the network", ge=1, le=20)
    best: int = option(3, "captions to show", ge=1, le=WIDEST_BEAM)
    seed: int = seed_option()


def caption(run: TrainedCaptioner, options: CaptionOptions, content: bytes) -> dict[str, Any]:
    """The best captions of an image, with the metrics of their words."""
    photograph = photograph_of(content, "the image", MOST_PIXELS)
    features = _image_network()(photograph.pixels[None].to(run.device))
    given = PhotographOptions(
        run=run.path,
        image=(Path("the image"),),
        samples=options.samples,
        best=options.best,
        seed=options.seed,
    )
    found = captioned(run, given.image, features, given)
    image = asdict(found.images[0])
    return {
        "draws": found.samples,
        "captions": image["captions"],
        "draws_said": image["draws"],
    }


@cache
def _image_network() -> ImageNetwork:
    """One for all runs."""
    return load_image_network()


def _open(path: Path) -> TrainedCaptioner:
    return TASK.open_run(path, device="cpu")


TAB = Tab(
    title="Captions",
    script="tasks/captions/tab.js",
    open=_open,
    about=about_draws,
    questions={"caption": Question(CaptionOptions, caption, MOST_BYTES, "image")},
)
