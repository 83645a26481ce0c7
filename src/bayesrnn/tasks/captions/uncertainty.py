"""Does the uncertainty of a captioner show which captions are bad, and which images new?"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesrnn.data.vocabulary import EOS
from bayesrnn.methods.base import Network
from bayesrnn.options import option
from bayesrnn.progress import progress_bar, say
from bayesrnn.random import RandomStreams, seeded
from bayesrnn.report.table import distinct_names
from bayesrnn.runs.arguments import UncertaintyOptions
from bayesrnn.runs.file_summary import summarise
from bayesrnn.runs.places import moved
from bayesrnn.runs.summary import RunSummary
from bayesrnn.runs.task import UncertaintyReport
from bayesrnn.tasks.captions.data import COCO, CaptionedImages, CaptionWords, has_coco, load_coco
from bayesrnn.tasks.captions.evaluate import DEFAULT_BEAM, caption_search
from bayesrnn.tasks.captions.scores import SCALE, score_captions
from bayesrnn.tasks.captions.selective import selective_captions
from bayesrnn.tasks.captions.task import TASK
from bayesrnn.tasks.captions.trained import TrainedCaptioner
from bayesrnn.tasks.captions.uncertainty_report import (
    caption_uncertainty_page,
    caption_uncertainty_text,
)
from bayesrnn.tasks.captions.uncertainty_results import (
    CaptionLevel,
    CaptionUncertainty,
    UnknownImages,
)
from bayesrnn.tasks.captions.words import read_captions
from bayesrnn.uncertainty.detection import Detection, detection
from bayesrnn.uncertainty.draws import Draws


@dataclass(frozen=True, kw_only=True)
class CaptionUncertaintySettings(UncertaintyOptions):
    """What to measure, and with how much effort."""

    samples: tuple[int, ...] = option(
        (0, 10), "numbers of draws", ge=0, zero="the mean weights", commas=True
    )
    coco: int | None = option(
        None,
        "tell at most so many images of COCO from those of the run's data, 0: none "
        "(default: all, if the data folder has them)",
        ge=0,
        zero="none",
    )


def caption_uncertainty(
    runs: Sequence[Path],
    settings: CaptionUncertaintySettings,
    checkpoint: str,
    device: str,
) -> list[CaptionUncertainty]:
    """The metrics of each run, on the images of its own data and on those of COCO."""
    seeded(settings.seed)  # refuses one that is out of range
    summaries = [summarise(TASK, run) for run in runs]
    # All are loaded before the long work begins, so that a mistake is reported at once.
    trained = [moved(TASK, TASK.open_run(run, checkpoint, device), settings) for run in runs]
    images = [getattr(one.captions(), settings.split) for one in trained]
    folders = dict.fromkeys(one.config.data_dir for one in trained)
    unknown = {folder: _unknown_features(folder, settings) for folder in folders}
    return [
        _measured(one, name, summary, regular, unknown[one.config.data_dir], settings)
        for one, name, summary, regular in zip(
            trained, distinct_names(summaries), summaries, images, strict=True
        )
    ]


def _unknown_features(data_dir: Path | None, settings: CaptionUncertaintySettings) -> Tensor | None:
    """The features of images of COCO; None where they are not wanted, or not there."""
    if settings.coco == 0:
        return None
    if settings.coco is None and not has_coco(data_dir):
        say(
            f"the data folder has no captions or no features of {COCO}, so this leaves out how "
            "well images of COCO are told from those of the run's own data"
        )
        return None
    features = load_coco(data_dir).features
    if settings.coco is None or settings.coco >= len(features):
        return features
    order = torch.randperm(len(features), generator=RandomStreams(settings.seed)["coco"])
    return features[order[: settings.coco].sort().values]


@dataclass(frozen=True)
class _Spoken:
    """The best caption of each image, its confidence and, where draws differ, its information."""

    words: list[CaptionWords]
    confidence: Tensor
    information: Tensor | None


def _measured(
    trained: TrainedCaptioner,
    name: str,
    summary: RunSummary,
    images: CaptionedImages,
    unknown: Tensor | None,
    settings: CaptionUncertaintySettings,
) -> CaptionUncertainty:
    samples = sorted(set(settings.samples))
    scaling = trained.scaling(samples[-1], settings.uncalibrated)
    draws = Draws(trained.method, trained.net, samples[-1], seeded(settings.seed), scaling)
    # Of a method whose draws are all the same, every number of them is read as one network.
    different = sorted({draws.differing(number) for number in samples})
    count = len(images) + (0 if unknown is None else len(unknown))
    work = count * (DEFAULT_BEAM + 1) * sum(max(1, number) for number in different)
    levels = {}
    with progress_bar(work, " captions", name) as bar:
        for number in different:
            networks = [draws[n] for n in range(number)] or [draws.mean()]
            regular = _speak(trained, networks, images.features, bar.update)
            other = None if unknown is None else _speak(trained, networks, unknown, bar.update)
            levels[number] = _level(number, regular, images, other, settings)
    return CaptionUncertainty(
        name=name,
        path=str(trained.path),
        method=trained.config.method,
        data=summary.data,
        settings=f"{summary.network}, {summary.settings}",
        split=settings.split,
        images=len(images),
        unknown_data=COCO,
        unknown=count - len(images),
        step=trained.step,
        seed=settings.seed,
        beam=DEFAULT_BEAM,
        bootstrap=settings.bootstrap,
        levels=tuple(replace(levels[draws.differing(n)], samples=n) for n in samples),
    )


def _speak(
    trained: TrainedCaptioner,
    networks: Sequence[Network],
    features: Tensor,
    advance: Callable[[int], object],
) -> _Spoken:
    """What the networks say together of images; `advance` is called with the
    number of hypotheses scored.
    """
    features = features.to(trained.device)
    found = caption_search(trained, DEFAULT_BEAM).captions(
        networks, features, lambda images: advance(DEFAULT_BEAM * len(networks) * images)
    )
    best = [captions[0] for captions in found]
    words = [tuple(trained.vocabulary.decode(caption.words)) for caption in best]
    # Read once more: where a network draws masks as it reads, the search has chosen among masks,
    # too, and its own metrics would be too good.
    read = read_captions(
        networks,
        features,
        [caption.words for caption in best],
        trained.vocabulary.index(EOS),
        lambda captions: advance(len(networks) * captions),
    )
    confidence = torch.tensor([metrics.confidence for metrics in read], dtype=torch.double)
    if len(networks) == 1:
        return _Spoken(words, confidence, None)
    # Of a caption: the mean over its words and `<eos>`.
    information = torch.stack([metrics.epistemic.mean() for metrics in read])
    return _Spoken(words, confidence, information)


def _level(
    samples: int,
    regular: _Spoken,
    images: CaptionedImages,
    unknown: _Spoken | None,
    settings: CaptionUncertaintySettings,
) -> CaptionLevel:
    scores = SCALE * score_captions(regular.words, images.captions).cider
    generator = seeded(settings.seed)
    return CaptionLevel(
        samples=samples,
        confidence=regular.confidence.mean().item(),
        information=_mean(regular.information),
        doubts=selective_captions(regular.confidence, scores, generator, settings.bootstrap),
        unknown=None if unknown is None else _detect(regular, unknown, settings),
    )


def _detect(
    regular: _Spoken, unknown: _Spoken, settings: CaptionUncertaintySettings
) -> UnknownImages:
    def by(scores: Tensor, other: Tensor) -> Detection:
        return detection(scores, other, seeded(settings.seed), settings.bootstrap)

    by_information = None
    if regular.information is not None and unknown.information is not None:
        by_information = by(regular.information, unknown.information)
    return UnknownImages(
        confidence=unknown.confidence.mean().item(),
        information=_mean(unknown.information),
        by_confidence=by(-regular.confidence, -unknown.confidence),
        by_information=by_information,
    )


def _mean(values: Tensor | None) -> float | None:
    return None if values is None else values.mean().item()


def as_json(runs: Sequence[CaptionUncertainty]) -> list[dict[str, Any]]:
    """The values for a JSON file."""
    return [asdict(run) for run in runs]


REPORT = UncertaintyReport(
    CaptionUncertaintySettings,
    caption_uncertainty,
    caption_uncertainty_page,
    as_json,
    caption_uncertainty_text,
)
