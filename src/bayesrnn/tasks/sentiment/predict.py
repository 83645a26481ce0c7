"""Predict the rating or the label of texts with uncertainty."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bayesrnn.data.text import decode_text, read_text
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.options import option
from bayesrnn.progress import progress_bar, say
from bayesrnn.random import seeded
from bayesrnn.report.table import Table
from bayesrnn.report.text import counted, number_text
from bayesrnn.runs.arguments import (
    CalibrationOptions,
    JsonOptions,
    RunOptions,
    require_one_text,
    samples_option,
    seed_option,
)
from bayesrnn.runs.output import require_outputs, write_json
from bayesrnn.tasks.sentiment.data import Labels, Numbers, review_words
from bayesrnn.tasks.sentiment.predictions import (
    PredictedLabels,
    PredictedNumbers,
    predict_labels,
    predict_numbers,
)
from bayesrnn.tasks.sentiment.segments import Segments
from bayesrnn.tasks.sentiment.tables import DELIMITERS, TABLES, is_table, read_texts
from bayesrnn.tasks.sentiment.task import TASK
from bayesrnn.tasks.sentiment.trained import TrainedTextPredictor
from bayesrnn.uncertainty.draws import Draws, networks_to_read
from bayesrnn.uncertainty.scaling import UNSCALED, Scaling

_STANDARD_INPUT = "-"
#: The share of unknown words from which on a prediction is not to be trusted.
_MOSTLY_UNKNOWN = 0.5


@dataclass(frozen=True, kw_only=True)
class PredictOptions(RunOptions, CalibrationOptions, JsonOptions):
    """The texts, the draws and the interval."""

    text: str | None = option(None, "the text to rate or to label", metavar="TEXT")
    file: Path | None = option(
        None,
        "or a file with one text a line (UTF-8), or a table with a header line if it ends in .csv "
        "or .tsv; - for standard input",
        metavar="FILE",
    )
    text_column: str | None = option(
        None, "the column of a table with the texts (default: text, or as in training)"
    )
    delimiter: str | None = option(
        None,
        "what stands between the columns of a table (default: as its header line has it)",
        choices=DELIMITERS,
    )
    samples: int = samples_option()
    interval: float = option(
        0.9, "share of the predicted probability that lies in the interval", gt=0, lt=1
    )
    seed: int = seed_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_text(self.text, self.file)


def predict_texts(options: PredictOptions) -> str:
    """What a run predicts for a text, or for each line of a file, as a table; also as JSON."""
    text, file = options.text, options.file
    require_outputs(None, options.json)
    # Before the run is opened, but for a table, whose column may be that of the run.
    given = {1: str(text)} if file is None else _lines(file, options)
    trained = TASK.open_run(options.run, options.checkpoint, options.device)
    if file is not None and is_table(file):
        given = _of_table(file, options, trained.config.text_column)
    all_words = {number: review_words(one) for number, one in given.items()}
    numbers = [number for number, found in all_words.items() if found]
    if not numbers:
        where = f"--text is {text!r}, which has" if file is None else f"{_source(file)} has"
        raise CorpusError(f"{where} no words; give a text of at least one word")
    if without := len(given) - len(numbers):
        say(f"note: {counted(without, 'text')} without words left out of {_source(file)}")
    texts, words = [given[n] for n in numbers], [all_words[n] for n in numbers]
    scaling = trained.scaling(options.samples, options.uncalibrated)
    result = predicted(
        trained, texts, words, options.samples, options.interval, options.seed, scaling
    )
    for number, one in zip(numbers, result["texts"], strict=True):
        if file is not None:
            one["row"] = number
        name = _named(number, len(texts))
        if one["unknown"] == 1:
            say(f"note: the run knows no word of {name}; the prediction says nothing about it")
        elif one["unknown"] >= _MOSTLY_UNKNOWN:
            say(
                f"note: {one['unknown']:.0%} of the words of {name} are unknown to the run; do not "
                "trust the prediction"
            )
    if options.json is not None:
        write_json(result, options.json)
    table = predicted_numbers_table if result["target"] == "number" else predicted_labels_table
    return table(result).text()


def predicted(
    trained: TrainedTextPredictor,
    texts: Sequence[str],
    words: Sequence[Sequence[str]],
    samples: int,
    interval: float,
    seed: int,
    scaling: Scaling = UNSCALED,
) -> dict[str, Any]:
    """The predictions for texts that are cut into words, and how they came about."""
    vocabulary, target = trained.vocabulary, trained.target
    segments = Segments.cut(
        [vocabulary.encode(found) for found in words],
        torch.zeros(len(words), dtype=torch.double),
        trained.config.segment,
    ).to(trained.device)
    draws = Draws(trained.method, trained.net, samples, seeded(seed), scaling)
    networks = networks_to_read(trained.method, trained.net, samples)
    with progress_bar(networks * len(segments), " segments", "reading", delay=1.0) as bar:
        if isinstance(target, Numbers):
            numbers = predict_numbers(draws, segments, target, bar.update)
            found = _numbers(numbers, interval)
        else:
            found = _labels(predict_labels(draws, segments, bar.update), target)
    about_texts = [
        {
            "text": text,
            "words": len(of_text),
            "unknown": sum(word not in vocabulary for word in of_text) / len(of_text),
        }
        for text, of_text in zip(texts, words, strict=True)
    ]
    return {
        "run": str(trained.path),
        "method": trained.config.method,
        "step": trained.step,
        "seed": seed,
        "samples": draws.differing(samples),
        "scaling": asdict(scaling),
        "target": "number" if isinstance(target, Numbers) else "label",
        "interval": interval,
        "texts": [{**one, **of} for one, of in zip(about_texts, found, strict=True)],
    }


def _numbers(numbers: PredictedNumbers, interval: float) -> list[dict[str, Any]]:
    of = numbers.texts
    low, high = of.interval(interval)
    columns = zip(
        *(t.tolist() for t in (of.mean, low, high, of.total.sqrt(), of.epistemic / of.total)),
        strict=True,
    )
    names = ("score", "low", "high", "deviation", "epistemic_share")
    return [dict(zip(names, column, strict=True)) for column in columns]


def _labels(labels: PredictedLabels, target: Labels) -> list[dict[str, Any]]:
    rows = zip(*(t.tolist() for t in (labels.texts, labels.total, labels.information)), strict=True)
    return [
        {
            "label": target.names[max(range(len(probabilities)), key=probabilities.__getitem__)],
            "probabilities": dict(zip(target.names, probabilities, strict=True)),
            "entropy": entropy,
            "mutual_information": information,
        }
        for probabilities, entropy, information in rows
    ]


def _of_table(file: Path, options: PredictOptions, trained: str | None) -> dict[int, str]:
    """The texts of the column that is asked for, that the run was trained on, or the usual one.

    By the numbers of their rows.
    """
    found = None
    if options.text_column is None and trained is not None:
        with contextlib.suppress(ConfigError):  # it has no such column
            found = read_texts(file, trained, options.delimiter)
    if found is None:
        found = read_texts(file, options.text_column, options.delimiter)
    if not found:
        raise CorpusError(f"{file} has no rows below its header line; give one for each text")
    return found


def _lines(file: Path, options: PredictOptions) -> dict[int, str]:
    """The lines of a file, or of standard input for `-`, by their numbers; none of a table."""
    if is_table(file):
        return {}
    if options.text_column is not None or options.delimiter is not None:
        raise ConfigError(
            f"--text-column and --delimiter are for tables, but {_source(file)} does not end in "
            f"{' or '.join(TABLES)}; leave them out"
        )
    if str(file) == _STANDARD_INPUT:
        # Bytes: what the terminal is set to must not change how the same text is read.
        text = decode_text(sys.stdin.buffer.read(), _source(file))
    else:
        text = read_text(file)
    if not text.strip():
        raise CorpusError(f"{_source(file)} has no text; give one text a line")
    return dict(enumerate(text.splitlines(), start=1))


def _source(file: Path | None) -> str:
    """What messages call a file."""
    return "standard input" if str(file) == _STANDARD_INPUT else str(file)


def _named(number: int, count: int) -> str:
    return "the text" if count == 1 else f"text {number}"


#: Labels that have a column of their own; of more, the likeliest are named.
_COLUMNS = 5


def predicted_numbers_table(result: Mapping[str, Any]) -> Table:
    """One line per text: score, interval, how much of the variance is epistemic."""
    interval = f"{100 * result['interval']:.4g}% interval"
    header = ["text", "score", interval, "epistemic", "unknown words"]
    rows = [
        [
            one["text"],
            _score_text(one["score"]),
            f"{_score_text(one['low'])} to {_score_text(one['high'])}",
            f"{one['epistemic_share']:.1%}",
            f"{one['unknown']:.1%}",
        ]
        for one in result["texts"]
    ]
    notes = [
        f"score: mean over {_drawn(result)}; the interval has the noise of the ratings in it",
        "epistemic: the share of the variance on which the draws disagree, and which more data "
        "could reduce",
    ]
    return Table(header, rows, ("text", "label"), notes)


def predicted_labels_table(result: Mapping[str, Any]) -> Table:
    """One line per text: label, probabilities, entropy and mutual information."""
    labels = list(result["texts"][0]["probabilities"])
    few = len(labels) <= _COLUMNS
    shown = [f"p({label})" for label in labels] if few else ["probability"]
    header = ["text", "label", *shown, "entropy", "information", "unknown words"]
    rows = []
    for one in result["texts"]:
        of = one["probabilities"]
        probabilities = [of[label] for label in labels] if few else [of[one["label"]]]
        rows.append(
            [
                one["text"],
                one["label"],
                *(number_text(probability) for probability in probabilities),
                number_text(one["entropy"]),
                number_text(one["mutual_information"]),
                f"{one['unknown']:.1%}",
            ]
        )
    notes = [
        f"probabilities: mean over {_drawn(result)}; entropy: of these, in nats",
        "information: the part of the entropy on which the draws disagree, and which more data "
        "could reduce",
    ]
    return Table(header, rows, ("text", "label"), notes)


def _drawn(result: Mapping[str, Any]) -> str:
    if not result["samples"]:
        return "a single network (no model uncertainty)"
    return f"{counted(result['samples'], 'draw')} of the network"


def _score_text(value: float) -> str:
    return f"{value:.4g}" if abs(value) >= 10 else number_text(value)
