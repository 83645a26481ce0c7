"""What the draws of a network expected at every word of one text, and what they expect after it."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bayesrnn.data.text import read_text
from bayesrnn.data.vocabulary import EOS
from bayesrnn.errors import CorpusError
from bayesrnn.options import option
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.report.heat import wants_colour
from bayesrnn.runs.arguments import (
    CalibrationOptions,
    JsonOptions,
    RunOrFileOptions,
    html_option,
    require_one_text,
    samples_option,
    seed_option,
)
from bayesrnn.runs.output import (
    columns,
    require_outputs,
    require_writable,
    write_json,
    write_text,
)
from bayesrnn.tasks.lm.generate import prompt_tokens
from bayesrnn.tasks.lm.inspect_csv import lines_csv, words_csv
from bayesrnn.tasks.lm.inspect_report import inspection_page, inspection_text, lines_text
from bayesrnn.tasks.lm.inspect_results import (
    Continuation,
    InspectedLine,
    InspectedText,
    InspectedWord,
)
from bayesrnn.tasks.lm.reading import readings
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.uncertainty.average import AverageProbabilities, RunningMoments
from bayesrnn.uncertainty.draws import Draws
from bayesrnn.uncertainty.scaling import UNSCALED, Scaling

#: The shares of the draws between which `low` and `high` lie.
QUANTILES = (0.05, 0.95)


@dataclass(frozen=True)
class Inspection:
    """Metrics for each word of a text, float64 [words] unless said otherwise.

    draws: how many were averaged; 0 is the mean network.
    probability: of the word that came, averaged.
    low, high: 5% and 95% quantile of that probability over the draws; None with fewer than two.
    entropy: of the averaged prediction, in nats.
    aleatoric: the mean entropy of single draws.
    likeliest: number of the word that was most probable (int64).
    likeliest_probability: its probability, averaged.
    following: numbers of the likeliest words after the end, likeliest first (int64 [top]).
    following_probability: their probabilities, averaged [top].
    following_spread: the standard deviations of these over the draws [top]; None with fewer than
        two.
    """

    draws: int
    probability: Tensor
    low: Tensor | None
    high: Tensor | None
    entropy: Tensor
    aleatoric: Tensor
    likeliest: Tensor
    likeliest_probability: Tensor
    following: Tensor
    following_probability: Tensor
    following_spread: Tensor | None

    @property
    def epistemic(self) -> Tensor:
        """The mutual information between word and weights; 0 with fewer than two draws."""
        return self.entropy - self.aleatoric

    @property
    def perplexity(self) -> float:
        """Of the whole text."""
        # No float32 is smaller, and none of the draws would find a word that improbable.
        floor = torch.finfo(torch.float32).tiny
        return float(self.probability.clamp_min(floor).log().mean().neg().exp())


@torch.no_grad()
def inspect_words(
    draws: Draws,
    ids: Tensor,
    vocabulary: int,
    samples: int,
    top: int,
    advance: Callable[[int], object] | None = None,
) -> Inspection:
    """Read a text once with `samples` draws (0: with the mean network).

    The text is read in chunks. What each draw gave the words is kept for one chunk only; after it,
    a few numbers a word are left.

    ids: the token before the text, then the words of the text.
    top: how many of the likeliest words after the end to give.
    advance: is called with the number of words that a network has read.
    """
    used = draws.differing(samples)
    parts: list[dict[str, Tensor]] = []
    single: list[Tensor] = []
    end = RunningMoments()
    for reading in readings(draws, ids[:, None], (samples,), vocabulary, advance):
        if reading.samples <= 1:  # the first to read this chunk
            single, end = [], RunningMoments()
        # After the last word of the text comes none: there may be one fewer than was read.
        targets = ids[1:][reading.words]
        logits = reading.logits[:, 0]
        end.add(logits[-1].double().softmax(-1))
        single.append(_target_probabilities(logits[: len(targets)], targets))
        if reading.samples == used:
            parts.append(_metrics(reading.average, targets, single))
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    following_probability, following = end.mean.topk(min(top, vocabulary))
    return Inspection(
        draws=used,
        low=whole.pop("low", None),
        high=whole.pop("high", None),
        following=following,
        following_probability=following_probability,
        following_spread=end.variance(correction=1)[following].sqrt() if end.count > 1 else None,
        **whole,
    )


def _target_probabilities(logits: Tensor, targets: Tensor) -> Tensor:
    """The probability of each target [words], from logits [words, vocabulary]."""
    of_targets = logits.gather(-1, targets[:, None])[:, 0]
    # Few words at a time: it takes as much memory as the logits that it works on.
    totals = torch.cat([part.logsumexp(-1) for part in torch.split(logits, 64)])
    return (of_targets - totals).exp().cpu().double()


def _metrics(
    average: AverageProbabilities, targets: Tensor, single: Sequence[Tensor]
) -> dict[str, Tensor]:
    words = len(targets)
    probs = average.mean[:words, 0]
    likeliest_probability, likeliest = probs.max(-1)
    found = {
        "probability": probs.gather(-1, targets[:, None])[:, 0],
        "entropy": average.total()[:words, 0],
        "aleatoric": average.aleatoric[:words, 0],
        "likeliest_probability": likeliest_probability,
    }
    metrics = {name: value.cpu().double() for name, value in found.items()}
    metrics["likeliest"] = likeliest.cpu()
    if len(single) > 1:
        low, high = np.quantile(torch.stack(list(single)).numpy(), QUANTILES, axis=0)
        metrics |= {"low": torch.from_numpy(low), "high": torch.from_numpy(high)}
    return metrics


@dataclass(frozen=True, kw_only=True)
class InspectOptions(RunOrFileOptions, CalibrationOptions, JsonOptions):
    """The text to look at, and how."""

    text: str | None = option(None, "the text to look at", metavar="TEXT")
    file: Path | None = option(None, "or a file with the text (UTF-8)", metavar="FILE")
    html: Path | None = html_option("the words shaded")
    csv: Path | None = option(
        None, "also write a row for each word to this file (or line: --per)", metavar="FILE"
    )
    per: str = option(
        "word",
        "what tables and rows are about; line: every line is read as a sentence of its own, after "
        "those before it, as in logs",
        choices=("word", "line"),
    )
    samples: int = samples_option()
    top: int = option(5, "rows of the tables", ge=1)
    seed: int = seed_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_text(self.text, self.file)


def inspect_text(options: InspectOptions) -> str:
    """What the run makes of a text, for the terminal; also as a page and as JSON if asked for."""
    require_outputs(options.html, options.json)
    if options.csv is not None:
        require_writable(options.csv)
    trained = TASK.open_run(options.run, options.checkpoint, options.device, for_inference=True)
    by_line = _lines(trained, options) if options.per == "line" else []
    tokens = [token for _, _, line in by_line for token in line]
    tokens = tokens or _tokens(trained, options.text, options.file)
    scaling = trained.scaling(options.samples, options.uncalibrated)
    found = inspected(trained, tokens, options.samples, options.top, options.seed, scaling)
    if by_line:
        found = replace(found, lines=_inspected_lines(by_line, found.words))
    if options.csv is not None:
        write_text(lines_csv(found) if by_line else words_csv(found), options.csv)
    if options.html is not None:
        write_text(inspection_page(found, options.top), options.html)
    if options.json is not None:
        write_json(asdict(found), options.json)
    if by_line:
        return lines_text(found, options.top, columns())
    return inspection_text(found, options.top, wants_colour(sys.stdout), columns())


def inspected(
    trained: TrainedLanguageModel,
    tokens: list[str],
    samples: int,
    top: int,
    seed: int,
    scaling: Scaling = UNSCALED,
) -> InspectedText:
    """The metrics of every word of a text that is cut into words."""
    vocabulary = trained.vocabulary
    # As in training, the end of a sentence comes before the first word, which has a chance so.
    ids = vocabulary.encode([EOS, *tokens]).to(trained.device)
    generator = seeded(seed)
    draws = Draws(trained.method, trained.net, samples, generator, scaling)
    words = max(draws.differing(samples), 1) * len(ids)
    with progress_bar(words, " words", "reading", delay=1.0) as bar:
        found = inspect_words(draws, ids, len(vocabulary), samples, top, bar.update)
    return InspectedText(
        run=trained.path.name,
        method=trained.config.method,
        step=trained.step,
        seed=seed,
        samples=found.draws,
        perplexity=found.perplexity,
        words=_words(trained, tokens, found),
        next=list(
            map(
                Continuation,
                map(trained.tokeniser.shown, vocabulary.decode(found.following)),
                found.following_probability.tolist(),
                _values(found.following_spread, len(found.following)),
            )
        ),
    )


def _tokens(trained: TrainedLanguageModel, text: str | None, file: Path | None) -> list[str]:
    """The tokens; `--text` may continue after its end, a file is complete."""
    if file is not None:
        tokens = trained.tokeniser.tokens(read_text(file))
    else:
        tokens = prompt_tokens(text or "", trained.tokeniser)
    if all(token == EOS for token in tokens):
        given = f"the file {file} has" if file is not None else f"--text is {text!r}, which has"
        raise CorpusError(f"{given} no words; give a text of at least one word")
    return tokens


def _lines(
    trained: TrainedLanguageModel, options: InspectOptions
) -> list[tuple[int, str, list[str]]]:
    """The lines that have words: number, text and tokens, `<eos>` at the end of each."""
    text = read_text(options.file) if options.file is not None else options.text or ""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        tokens = trained.tokeniser.tokens(line)
        if any(token != EOS for token in tokens):
            found.append((number, line.strip(), tokens))
    return found


def _inspected_lines(
    lines: Sequence[tuple[int, str, list[str]]], words: Sequence[InspectedWord]
) -> list[InspectedLine]:
    found, start = [], 0
    for number, text, tokens in lines:
        own = words[start : start + len(tokens)]
        start += len(tokens)
        surprises = [-math.log(max(word.probability, sys.float_info.min)) for word in own]
        surprise = sum(surprises) / len(own)
        line = InspectedLine(
            line=number,
            text=text,
            words=len(own),
            unknown=sum(not word.known for word in own),
            perplexity=math.exp(surprise),
            surprise=surprise,
            largest_surprise=max(surprises),
            entropy=sum(word.entropy for word in own) / len(own),
            epistemic=sum(word.epistemic for word in own) / len(own),
        )
        found.append(line)
    return found


def _words(
    trained: TrainedLanguageModel, tokens: list[str], found: Inspection
) -> list[InspectedWord]:
    vocabulary = trained.vocabulary
    columns = zip(
        map(trained.tokeniser.shown, tokens),
        (token in vocabulary for token in tokens),
        found.probability.tolist(),
        _values(found.low, len(tokens)),
        _values(found.high, len(tokens)),
        found.entropy.tolist(),
        found.aleatoric.tolist(),
        found.epistemic.tolist(),
        map(trained.tokeniser.shown, vocabulary.decode(found.likeliest)),
        found.likeliest_probability.tolist(),
        strict=True,
    )
    return [InspectedWord(*column) for column in columns]


def _values(found: Tensor | None, count: int) -> list[float] | list[None]:
    """The numbers, or None for each."""
    return [None] * count if found is None else found.tolist()
