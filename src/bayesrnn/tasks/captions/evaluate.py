"""How well a captioner says what images show."""

from collections.abc import Sequence

from bayesrnn.data.vocabulary import EOS, UNK
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Bounded
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.runs.evaluation import Row, about, inference_rows, likelihood_figures
from bayesrnn.tasks.captions.baseline import NEIGHBOURS, consensus_row
from bayesrnn.tasks.captions.batches import EncodedCaptions
from bayesrnn.tasks.captions.data import CaptionedImages
from bayesrnn.tasks.captions.likelihood import caption_likelihood, caption_minibatches
from bayesrnn.tasks.captions.official_scores import official_scores, require_official
from bayesrnn.tasks.captions.rows import CONVENTION, SCALE, scaled
from bayesrnn.tasks.captions.scores import score_captions
from bayesrnn.tasks.captions.search import CaptionSearch, SpokenCaption
from bayesrnn.tasks.captions.task import TrainedCaptioner
from bayesrnn.uncertainty.bound import likelihood_bound
from bayesrnn.uncertainty.draws import Draws, networks_to_read

DEFAULT_BEAM = 3

#: Each caption that is pursued has a state for every network, all in memory at once.
_WIDEST_BEAM = 100


def evaluate_captions(
    trained: TrainedCaptioner,
    split: str,
    samples: int = 0,
    seed: int = 1,
    beam: int = DEFAULT_BEAM,
    official: Sequence[str] = (),
) -> Row:
    """The rows of a captioner on a split of its own images, with what was said of each image.

    official: further scores of what was said, METEOR or SPICE (`official_scores`).

    Below them, but for the images that it learnt from, are captions that need no training.
    """
    require_official(official)
    require_beam(beam)
    searches = {"greedy": caption_search(trained, 1), "beam": caption_search(trained, beam)}
    data = trained.captions()
    images: CaptionedImages = getattr(data, split)
    encoded = EncodedCaptions.encode(images, data.vocabulary).to(trained.device)

    def averaged(samples: int) -> Row:
        draws = Draws(trained.method, trained.net, samples, seeded(seed))
        networks = networks_to_read(trained.method, trained.net, samples)
        with progress_bar(networks * len(encoded), " captions", "reading") as bar:
            found = caption_likelihood(draws, encoded, bar.update)
        with progress_bar(len(searches) * len(images), " images", "captioning") as bar:
            said = {}
            for way, search in searches.items():
                # Drawn anew: masks that change as a network reads start alike in each search.
                drawn = list(draws.networks())
                found_by = search.captions(drawn, encoded.features, bar.update)
                said[way] = [captions[0] for captions in found_by]
        return {
            **likelihood_figures(found),
            "beam": beam,
            **_scored(trained, images, said, official),
        }

    def bounded(method: Bounded) -> Row:
        minibatches = caption_minibatches(encoded, trained.config.batch_size)
        words = int(encoded.lengths.sum())
        with progress_bar(words, " words", "bounding") as bar:
            found = likelihood_bound(method, trained.net, minibatches, seeded(seed), bar.update)
        return likelihood_figures(found)

    rows = inference_rows(trained, samples, averaged, bounded)
    if beam != DEFAULT_BEAM:
        # Kept beside the results of the usual search, which are the ones that can be compared.
        for row in rows:
            if "beam" in row:
                row["inference"] = f"beam{beam}-{row['inference']}"
    if split != "train":
        neighbours = min(NEIGHBOURS, len(data.train))
        rows.append(consensus_row(trained.path, data.train, split, images, official, neighbours))
    return {
        **about(trained, split, seed),
        "data": trained.config.data,
        "convention": CONVENTION,
        "score_scale": SCALE,
        "rows": rows,
    }


def require_beam(beam: int, name: str = "--beam") -> None:
    """Refuse a number of captions to pursue that cannot be meant."""
    if not 1 <= beam <= _WIDEST_BEAM:
        raise ConfigError(f"{name} is {beam}; it has to be from 1 to {_WIDEST_BEAM}")


def caption_search(trained: TrainedCaptioner, beam: int) -> CaptionSearch:
    """The search for captions in the words of a run, of which `<unk>` is none to say."""
    vocabulary = trained.vocabulary
    return CaptionSearch(vocabulary.index(EOS), (vocabulary.index(UNK),), beam)


def _scored(
    trained: TrainedCaptioner,
    images: CaptionedImages,
    said: dict[str, list[SpokenCaption]],
    official: Sequence[str],
) -> Row:
    """The scores of each way of search, and the captions of each image as texts."""
    vocabulary = trained.vocabulary
    words = {
        way: [vocabulary.decode(caption.words) for caption in captions]
        for way, captions in said.items()
    }
    captions = [
        {"image": name, **{way: " ".join(words[way][number]) for way in words}}
        for number, name in enumerate(images.names)
    ]
    scores = {
        way: scaled(
            {
                **score_captions(own, images.captions).figures(),
                **official_scores(official, own, images.captions),
            }
        )
        for way, own in words.items()
    }
    return {"scores": scores, "captions": captions}
