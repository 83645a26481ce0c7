"""The uncertainty benchmark: does a language model know when a text is not what it learnt?"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bayesrnn.data.text import read_text
from bayesrnn.data.tokens import WORD
from bayesrnn.data.vocabulary import EOS, UNK, Vocabulary
from bayesrnn.errors import CorpusError
from bayesrnn.options import option
from bayesrnn.progress import progress_bar
from bayesrnn.random import RandomStreams, seeded
from bayesrnn.report.table import distinct_names
from bayesrnn.runs.arguments import UncertaintyOptions
from bayesrnn.runs.file_summary import summarise
from bayesrnn.runs.places import moved
from bayesrnn.runs.summary import RunSummary
from bayesrnn.runs.task import UncertaintyReport
from bayesrnn.tasks.lm.data import CORPUS_NAMES, Corpus, load_corpus
from bayesrnn.tasks.lm.prune import VALIDATION_STREAMS
from bayesrnn.tasks.lm.reading import (
    Averaging,
    WordMetrics,
    readings,
    require_words,
    side_by_side,
    spelt_surprise,
    word_metrics,
)
from bayesrnn.tasks.lm.shifts import reversed_text, shuffled_text, text_with_random_words
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.tasks.lm.uncertainty_page import uncertainty_page
from bayesrnn.tasks.lm.uncertainty_results import (
    DrawLevel,
    RunUncertainty,
    ShiftMetrics,
    TextMetrics,
)
from bayesrnn.tasks.lm.uncertainty_tables import uncertainty_text
from bayesrnn.uncertainty.average import entropy
from bayesrnn.uncertainty.calibration import reliability
from bayesrnn.uncertainty.detection import Detection, detection, require_window, window_means
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.selective import risk_coverage
from bayesrnn.uncertainty.temperature import TemperatureFit

REVERSED = "reversed"


@dataclass(frozen=True, kw_only=True)
class UncertaintySettings(UncertaintyOptions):
    """What to measure, and with how much effort.

    shifts: further texts, beside the reversed, the shuffled and the one with random words.
    only_reversed: leave out the shuffled text and the one with random words: half the work.
    """

    samples: tuple[int, ...] = option(
        (0, 1, 2, 5, 10, 20),
        "numbers of draws, 0: the mean weights; of other tasks than lm by default 0,10",
        ge=0,
        zero="the mean weights",
        commas=True,
    )
    shifts: tuple[str, ...] = option(
        (),
        "one more shifted text: a corpus by name or folder (its test text), or a text file; of "
        "sentiment a CSV file, or one text a line; of digits a folder with the test images of "
        "another set in MNIST's format, such as Fashion-MNIST; may be given several times",
        repeated=True,
        flag="shift",
        metavar="NAME|PATH",
    )
    random_words: float = option(0.2, "share of the words that random ones replace", gt=0, le=1)
    only_reversed: bool = False
    window: int = option(20, "words per window when texts are told apart", ge=1)
    streams: int = option(
        1, "parts of each text read side by side; 1 is exact, more are faster", ge=1
    )
    temperature_words: int = option(
        10_000, "words of the validation text to fit the temperature to", ge=2
    )


def uncertainty(
    runs: Sequence[Path],
    settings: UncertaintySettings,
    checkpoint: str = "best",
    device: str = "auto",
) -> list[RunUncertainty]:
    """The benchmark of each run, on the text of its own corpus."""
    summaries = [summarise(TASK, run) for run in runs]
    # All are loaded before the long work begins, so that a mistake is reported at once.
    trained = [
        moved(TASK, TASK.open_run(run, checkpoint, device, for_inference=True), settings)
        for run in runs
    ]
    corpora = [one.corpus() for one in trained]
    texts = [_texts(*pair, settings) for pair in zip(trained, corpora, strict=True)]
    names = distinct_names(summaries)
    return [
        _benchmark(one, name, summary, shifts, corpus.valid, settings)
        for one, name, summary, shifts, corpus in zip(
            trained, names, summaries, texts, corpora, strict=True
        )
    ]


def _texts(
    trained: TrainedLanguageModel, corpus: Corpus, settings: UncertaintySettings
) -> dict[str, Tensor]:
    """The regular text, named "", and the shifted ones."""
    vocabulary, streams = trained.vocabulary, RandomStreams(settings.seed)
    regular: Tensor = getattr(corpus, settings.split)
    share = settings.random_words
    texts = {"": regular, REVERSED: reversed_text(regular)}
    if not settings.only_reversed:
        texts["shuffled"] = shuffled_text(regular, streams["shuffled"])
        texts[f"random {100 * share:g}%"] = text_with_random_words(
            regular, share, len(vocabulary), streams["random words"]
        )
    for given in settings.shifts:
        other = _other_text(given, trained)
        texts[_free_name(Path(given).name, texts)] = other[: len(regular)]
    # Now, and not after the long work.
    for name, text in texts.items():
        said = f"the {name or settings.split} text"
        require_words(len(text), settings.streams, said)
        require_window(len(text) - 1, settings.window, said)
    return texts


def _other_text(given: str, trained: TrainedLanguageModel) -> Tensor:
    """Another text in the words of the model: a file, or the test text of a corpus."""
    path, vocabulary = Path(given), trained.vocabulary
    if given in CORPUS_NAMES or path.is_dir():
        kind = trained.config.tokens
        known = None if kind == WORD else vocabulary
        corpus = load_corpus(given, trained.config.data_dir, tokens=kind, vocabulary=known)
        words = corpus.vocabulary.decode(corpus.test)
    else:
        words = trained.tokeniser.tokens(read_text(path))
    if not any(word != EOS for word in words):
        raise CorpusError(f"--shift is {given}, which has no words; give a text")
    return vocabulary.encode(words)


def _free_name(name: str, taken: Mapping[str, Any]) -> str:
    names = [name, *(f"{name} ({number})" for number in range(2, len(taken) + 2))]
    return next(one for one in names if one not in taken)


def _benchmark(
    trained: TrainedLanguageModel,
    name: str,
    summary: RunSummary,
    texts: Mapping[str, Tensor],
    valid: Tensor,
    settings: UncertaintySettings,
) -> RunUncertainty:
    samples = sorted(set(settings.samples))
    generator = seeded(settings.seed)
    scaling = trained.scaling(samples[-1], settings.uncalibrated)
    draws = Draws(trained.method, trained.net, samples[-1], generator, scaling)
    unscaled = [Averaging(number) for number in samples]
    ends = sorted({samples[0], samples[-1]})
    fitted = valid[: settings.temperature_words]
    scaled = _scaled(trained, draws, ends, fitted, name)
    on_device = [text.to(trained.device) for text in texts.values()]
    averagings = [*unscaled, *scaled]
    cells = max(-(-(len(text) - 1) // settings.streams) for text in on_device)
    words = _networks(draws, samples) * cells * len(on_device) * settings.streams
    with progress_bar(words, " words", name) as bar:
        found = word_metrics(
            draws,
            on_device,
            averagings,
            vocabulary=len(trained.vocabulary),
            streams=settings.streams,
            advance=bar.update,
        )
    levels = {
        one: _level(
            one,
            dict(zip(texts, found[one], strict=True)),
            texts,
            draws,
            trained.vocabulary,
            settings,
        )
        for one in averagings
    }
    return RunUncertainty(
        name=name,
        path=str(trained.path),
        method=trained.config.method,
        corpus=summary.data,
        vocabulary=summary.vocabulary,
        settings=f"{summary.network}, {summary.settings}",
        split=settings.split,
        step=trained.step,
        seed=settings.seed,
        window=settings.window,
        streams=settings.streams,
        bootstrap=settings.bootstrap,
        temperature_words=settings.temperature_words,
        unknown={name: _unknown(text, trained.vocabulary) for name, text in texts.items() if name},
        unigram_entropy=unigram_entropy(texts[""]),
        levels=tuple(levels[one] for one in unscaled),
        scaled=tuple(levels[one] for one in scaled),
    )


def _unknown(text: Tensor, vocabulary: Vocabulary) -> float:
    """The share of words that the vocabulary does not have."""
    if UNK not in vocabulary:
        return 0.0
    return (text == vocabulary.index(UNK)).double().mean().item()


def unigram_entropy(text: Tensor) -> float:
    """The entropy of the word counts of a text, in nats."""
    counts = text.bincount().double()
    return entropy(counts / counts.sum()).item()


def _scaled(
    trained: TrainedLanguageModel,
    draws: Draws,
    samples: Sequence[int],
    text: Tensor,
    name: str,
) -> list[Averaging]:
    """The averages over draws with the temperature that fits each best to a validation text."""
    streams = min(VALIDATION_STREAMS, len(text) - 1)
    # Cut so that all streams are equally long: padding is no text.
    text = text[: (len(text) - 1) // streams * streams + 1]
    inputs, targets, _ = side_by_side([text.to(trained.device)], streams)
    fits = {number: TemperatureFit() for number in samples}
    words = _networks(draws, samples) * inputs.numel()
    with progress_bar(words, " words", f"{name}: temperature") as bar:
        for reading in readings(draws, inputs, samples, len(trained.vocabulary), bar.update):
            for number, fit in fits.items():
                if draws.differing(number) == reading.samples:
                    fit.add(reading.average.mean, targets[reading.words])
    return [Averaging(number, fit.temperature()) for number, fit in fits.items()]


def _networks(draws: Draws, samples: Sequence[int]) -> int:
    """How many networks have to read the texts."""
    return draws.differing(max(samples)) + (0 in map(draws.differing, samples))


def _level(
    averaging: Averaging,
    found: Mapping[str, WordMetrics],
    texts: Mapping[str, Tensor],
    draws: Draws,
    vocabulary: Vocabulary,
    settings: UncertaintySettings,
) -> DrawLevel:
    regular = found[""]
    surprise = {
        name: spelt_surprise(metrics.nll, texts[name][1:], vocabulary)
        for name, metrics in found.items()
    }
    wrong = ~regular.correct
    draws_differ = draws.differing(averaging.samples) > 1 and averaging.temperature == 1

    def shift(name: str) -> ShiftMetrics:
        shifted = found[name]
        return ShiftMetrics(
            figures=_means(shifted),
            gap=_mean(shifted.entropy) - _mean(regular.entropy),
            by_entropy=detect(regular.entropy, shifted.entropy),
            by_information=(
                detect(regular.information, shifted.information) if draws_differ else None
            ),
            by_surprise=detect(surprise[""], surprise[name]),
            surprise=_mean(surprise[name]) - _mean(surprise[""]),
        )

    def detect(scores: Tensor, shifted: Tensor) -> Detection:
        generator = seeded(settings.seed)
        ours, theirs = (window_means(values, settings.window) for values in (scores, shifted))
        return detection(ours, theirs, generator, settings.bootstrap)

    return DrawLevel(
        samples=averaging.samples,
        temperature=averaging.temperature,
        regular=_means(regular),
        error=_mean(wrong),
        brier=_mean(regular.brier),
        reliability=reliability(regular.confidence, regular.correct),
        reliability_equal_mass=reliability(regular.confidence, regular.correct, equal_mass=True),
        risk_coverage=risk_coverage(-regular.confidence, wrong.double()),
        shifts={name: shift(name) for name in found if name},
    )


def _means(metrics: WordMetrics) -> TextMetrics:
    names = ("entropy", "aleatoric", "information", "nll")
    means = {name: _mean(getattr(metrics, name)) for name in names}
    return TextMetrics(**means, words=len(metrics.nll))


def _mean(values: Tensor) -> float:
    return values.mean(dtype=torch.double).item()


def as_json(runs: Sequence[RunUncertainty]) -> list[dict[str, Any]]:
    """The benchmark as values for a JSON file, with the metrics that follow from others."""
    return [
        {
            **asdict(run),
            "levels": [_level_json(level) for level in run.levels],
            "scaled": [_level_json(level) for level in run.scaled],
        }
        for run in runs
    ]


def _level_json(level: DrawLevel) -> dict[str, Any]:
    return {
        **asdict(level),
        "perplexity": level.regular.perplexity,
        "overconfidence": level.regular.overconfidence,
        "ece": level.reliability.error,
        "ece_equal_mass": level.reliability_equal_mass.error,
        "aurc": level.risk_coverage.area,
    }


REPORT = UncertaintyReport(
    UncertaintySettings, uncertainty, uncertainty_page, as_json, uncertainty_text
)
