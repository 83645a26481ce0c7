"""How well a captioner says what images show."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from bayesrnn.data.vocabulary import EOS, UNK
from bayesrnn.methods.base import Bounded
from bayesrnn.options import CheckedOptions, option
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.runs.evaluation import (
    Evaluation,
    EvaluationSettings,
    Inference,
    Row,
    about,
    asked_row,
    inference_rows,
)
from bayesrnn.tasks.captions.baseline import NEIGHBOURS, Consensus, consensus_of
from bayesrnn.tasks.captions.batches import EncodedCaptions
from bayesrnn.tasks.captions.data import FEWEST_TIMES, CaptionedImages
from bayesrnn.tasks.captions.likelihood import caption_likelihood, caption_minibatches
from bayesrnn.tasks.captions.scores import SCALE, scaled_scores, score_captions
from bayesrnn.tasks.captions.search import CaptionSearch, SpokenCaption
from bayesrnn.tasks.captions.trained import TrainedCaptioner
from bayesrnn.tasks.captions.words import read_captions
from bayesrnn.uncertainty.bound import likelihood_bound
from bayesrnn.uncertainty.draws import Draws, networks_to_read

DEFAULT_BEAM = 3

#: Each caption that is pursued has a state for every network, all in memory at once.
WIDEST_BEAM = 100

#: What a perplexity of captions is of: without it, no two can be compared.
CONVENTION = (
    "perplexity is of captions in lower case without punctuation; words seen fewer than "
    f"{FEWEST_TIMES} times in the training captions are <unk>, and <eos> is counted"
)

SCORES_NOTE = (
    f"scores are times {SCALE}, against all captions that people wrote of an image; CIDEr is "
    "CIDEr-D, weighed by these captions"
)


@dataclass(frozen=True)
class CaptionOptions(CheckedOptions):
    """What `bayesrnn evaluate` can be asked of captioners alone."""

    beam: int = option(
        DEFAULT_BEAM,
        "how many unfinished captions the search pursues (3 is what `compare` shows), beside a "
        "search that always takes the likeliest word",
        ge=1,
        le=WIDEST_BEAM,
    )


@dataclass(frozen=True, kw_only=True)
class CaptionRow(Row):
    """The likelihood of people's captions, and the scores of those that a search found.

    scores: by search and name, times `SCALE`.
    captions: what was said of each image, the confidence in what the beam search said, and the
        nll of people's captions of it with their number of words.
    made_from: of captions that need no training, a hash of all that they depend on.
    """

    stored_only: ClassVar[tuple[str, ...]] = ("captions", "made_from")

    perplexity: float | None = None
    nll: float | None = None
    tokens: int | None = None
    kl: float | None = None
    standard_error: float | None = None
    beam: int | None = None
    scores: Mapping[str, Mapping[str, float]] | None = None
    captions: list[dict[str, Any]] | None = None
    made_from: str | None = None


@dataclass(frozen=True, kw_only=True)
class CaptionEvaluation(Evaluation):
    """The rows of a captioner, and what they are of."""

    data: str
    convention: str = CONVENTION
    score_scale: int = SCALE


def evaluate_captions(
    run: TrainedCaptioner, settings: EvaluationSettings, options: CaptionOptions
) -> CaptionEvaluation:
    """The rows of a captioner on a split of its own images, with what was said of each image.

    Below them, but for the images that it learnt from, are captions that need no training.
    """
    beam, seed = options.beam, settings.seed
    searches = {"greedy": caption_search(run, 1), "beam": caption_search(run, beam)}
    data = run.captions()
    images: CaptionedImages = getattr(data, settings.split)
    encoded = EncodedCaptions.encode(images, data.vocabulary).to(run.device)
    # Kept beside the results of the usual search, which are the ones that can be compared.
    prefix = "" if beam == DEFAULT_BEAM else f"beam{beam}-"

    def averaged(inference: Inference) -> CaptionRow:
        draws = Draws(run.method, run.net, inference.samples, seeded(seed), inference.scales)
        networks = networks_to_read(run.method, run.net, inference.samples)
        with progress_bar(networks * len(encoded), " captions", "reading") as bar:
            found = caption_likelihood(draws, encoded, bar.update)
        with progress_bar((len(searches) + 1) * len(images), " images", "captioning") as bar:
            said = {}
            for name, search in searches.items():
                # Drawn anew: masks that change as a network reads start alike in each search.
                drawn = list(draws.networks())
                found_by = search.captions(drawn, encoded.features, bar.update)
                said[name] = [captions[0] for captions in found_by]
            # Read once more: a search whose masks change as it reads has chosen among masks, too.
            read = read_captions(
                list(draws.networks()),
                encoded.features,
                [caption.words for caption in said["beam"]],
                run.vocabulary.index(EOS),
                bar.update,
            )
        of_images = {
            "nll": found.nll.tolist(),
            "words": found.words.long().tolist(),
            "confidence": [metrics.confidence for metrics in read],
        }
        likelihood = found.of_all()
        return CaptionRow(
            inference=prefix + inference.inference,
            label=inference.label,
            samples=inference.samples,
            scaling=inference.scaling,
            perplexity=likelihood.perplexity,
            **asdict(likelihood),
            beam=beam,
            **_scored(run, images, said, of_images),
        )

    def bounded(inference: Inference, method: Bounded) -> CaptionRow:
        minibatches = caption_minibatches(encoded, run.config.batch_size)
        words = int(encoded.lengths.sum())
        with progress_bar(words, " words", "bounding") as bar:
            found = likelihood_bound(method, run.net, minibatches, seeded(seed), bar.update)
        return CaptionRow(**inference._asdict(), perplexity=found.perplexity, **asdict(found))

    rows = inference_rows(run, settings, averaged, bounded)
    asked = asked_row(rows, settings.samples)
    if settings.split != "train":
        neighbours = min(NEIGHBOURS, len(data.train))
        consensus = consensus_of(run.path, data.train, settings.split, images, neighbours)
        rows.append(consensus_row(consensus, images))
    return CaptionEvaluation(
        **about(run, settings), data=run.config.data, rows=tuple(rows), asked=asked
    )


def caption_search(run: TrainedCaptioner, beam: int) -> CaptionSearch:
    """The search for captions in the words of a run, of which `<unk>` is none to say."""
    vocabulary = run.vocabulary
    return CaptionSearch(vocabulary.index(EOS), (vocabulary.index(UNK),), beam)


def _scored(
    run: TrainedCaptioner,
    images: CaptionedImages,
    said: Mapping[str, list[SpokenCaption]],
    of_images: Mapping[str, list[float]],
) -> dict[str, Any]:
    """The scores of each search, and for each image its captions as texts with `of_images`."""
    vocabulary = run.vocabulary
    words = {
        search: [vocabulary.decode(caption.words) for caption in captions]
        for search, captions in said.items()
    }
    captions = [
        {
            "image": name,
            **{search: " ".join(own[number]) for search, own in words.items()},
            **{metric: values[number] for metric, values in of_images.items()},
        }
        for number, name in enumerate(images.names)
    ]
    scores = {
        search: scaled_scores(score_captions(own, images.captions)) for search, own in words.items()
    }
    return {"scores": scores, "captions": captions}


def consensus_row(found: Consensus, images: CaptionedImages) -> CaptionRow:
    """The scores of captions that need no training."""
    scores = scaled_scores(score_captions(found.captions, images.captions))
    return CaptionRow(
        inference=found.name,
        label=f"consensus of {found.neighbours} nearest images",
        samples=0,
        scores={"consensus": scores},
        captions=[
            {"image": name, "consensus": " ".join(words)}
            for name, words in zip(images.names, found.captions, strict=True)
        ],
        made_from=found.made_from,
    )


def score_lines(row: CaptionRow) -> list[str]:
    """The scores of each search for captions, a line for each; none in other rows."""
    titles = {"greedy": "greedy: ", "beam": f"beam {row.beam}: "}
    return [
        titles.get(search, "") + ", ".join(f"{name} {value:.1f}" for name, value in own.items())
        for search, own in (row.scores or {}).items()
    ]
