"""The tab of language models: each word of a text, what came into question, and what may follow."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from bayesrnn.data.vocabulary import EOS
from bayesrnn.errors import CorpusError
from bayesrnn.options import REQUIRED, CheckedOptions, option
from bayesrnn.random import seeded
from bayesrnn.report.text import counted
from bayesrnn.runs.arguments import seed_option
from bayesrnn.runs.tab import Question, Tab, about_draws, scaling_of
from bayesrnn.tasks.lm.generate import continuation, prompt_tokens
from bayesrnn.tasks.lm.reading import readings
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel
from bayesrnn.uncertainty.draws import Draws

#: Words of a text that are shown at once, and those that may be added.
MOST_WORDS: Final = 2000
MOST_ADDED: Final = 200
#: Single draws whose candidates are shown, and candidates of each.
SHOWN_DRAWS: Final = 3
_TOP: Final = 5


@dataclass(frozen=True, kw_only=True)
class ReadOptions(CheckedOptions):
    """A text, and how it is read."""

    text: str = option(REQUIRED, "the text")
    samples: int = option(10, "draws of the network", ge=1, le=20)
    noise: float = option(1.0, "a factor on the noise of draws", ge=0, le=10)
    seed: int = seed_option()


@dataclass(frozen=True, kw_only=True)
class ContinueOptions(CheckedOptions):
    """How a text goes on."""

    text: str = option(REQUIRED, "how it begins")
    words: int = option(30, "how many words to add", ge=1, le=MOST_ADDED)
    temperature: float = option(1.0, "below 1 safer, above 1 wilder", ge=0, le=4)
    seed: int = seed_option("another seed gives another text")


class Candidates(NamedTuple):
    """The likeliest words at some places, likeliest first: their numbers and probabilities."""

    words: Tensor
    probabilities: Tensor


class Doubts(NamedTuple):
    """What was expected at each word of a text; the candidates also after its end.

    draws: how many were averaged; 0: one network. average, single: the candidates of all draws
    together, and of some single ones.
    """

    draws: int
    probability: Tensor
    total: Tensor
    aleatoric: Tensor
    average: Candidates
    single: Sequence[Candidates]


@torch.no_grad()
def doubts(draws: Draws, ids: Tensor, vocabulary: int, samples: int) -> Doubts:
    """Read a text once with all draws.

    ids: the token before the text, then its words.
    """
    used = draws.differing(samples)
    parts: list[tuple[Tensor, ...]] = []
    single: list[list[Candidates]] = [[] for _ in range(min(used, SHOWN_DRAWS))]
    averages: list[Candidates] = []
    for reading in readings(draws, ids[:, None], (samples,), vocabulary):
        if 0 < reading.samples <= len(single):
            found = _likeliest(reading.logits[:, 0].double().softmax(-1))
            single[reading.samples - 1].append(found)
        if reading.samples == used:
            targets = ids[1:][reading.words]
            mean = reading.average.mean[:, 0]
            averages.append(_likeliest(mean))
            met = mean[: len(targets)].gather(-1, targets[:, None])[:, 0]
            entropies = (reading.average.total(), reading.average.aleatoric)
            parts.append((met, *(of[: len(targets), 0] for of in entropies)))
    probability, total, aleatoric = (
        torch.cat(of).double().cpu() for of in zip(*parts, strict=True)
    )
    alone = [_together(of) for of in single]
    return Doubts(used, probability, total, aleatoric, _together(averages), alone)


def _likeliest(probabilities: Tensor) -> Candidates:
    best = probabilities.topk(min(_TOP, probabilities.shape[-1]))
    return Candidates(best.indices.cpu(), best.values.cpu())


def _together(parts: Sequence[Candidates]) -> Candidates:
    return Candidates(*(torch.cat(of) for of in zip(*parts, strict=True)))


def read(run: TrainedLanguageModel, options: ReadOptions, content: bytes) -> dict[str, Any]:
    """The words of a text with what each of them met."""
    tokens = _tokens(run, options.text)
    vocabulary = run.vocabulary
    ids = vocabulary.encode([EOS, *tokens]).to(run.device)
    scaling = scaling_of(run, options.noise if run.method.noise_can_change else 1.0)
    draws = Draws(run.method, run.net, options.samples, seeded(options.seed), scaling)
    found = doubts(draws, ids, len(vocabulary), options.samples)
    shown = run.tokeniser.shown
    rows = zip(
        map(shown, tokens),
        (token in vocabulary for token in tokens),
        found.probability.tolist(),
        found.total.tolist(),
        found.aleatoric.tolist(),
        strict=True,
    )

    def named(candidates: Candidates) -> list[list[list[Any]]]:
        words, shares = candidates.words, candidates.probabilities.tolist()
        return [
            [[shown(word), round(share, 5)] for word, share in zip(line, of, strict=True)]
            for line, of in zip(map(vocabulary.decode, words), shares, strict=True)
        ]

    surprise = found.probability.clamp_min(torch.finfo(torch.float32).tiny).log().mean().neg()
    return {
        "draws": found.draws,
        "perplexity": surprise.exp().item(),
        "words": [
            {
                "word": word,
                "end": word == EOS,
                "known": known,
                "probability": probability,
                "total": total,
                "aleatoric": aleatoric,
                "epistemic": max(0.0, total - aleatoric),
            }
            for word, known, probability, total, aleatoric in rows
        ],
        "average": named(found.average),
        "single": [named(one) for one in found.single],
    }


def go_on(run: TrainedLanguageModel, options: ContinueOptions, content: bytes) -> dict[str, Any]:
    """The text with words added that the mean network has drawn."""
    tokens = prompt_tokens(options.text, run.tokeniser)
    _require_few(run, tokens)
    made = continuation(
        run, tokens, options.words, temperature=options.temperature, seed=options.seed
    )
    return {"text": run.tokeniser.text(made)}


def _tokens(run: TrainedLanguageModel, text: str) -> list[str]:
    tokens = prompt_tokens(text, run.tokeniser)
    if all(token == EOS for token in tokens):
        raise CorpusError("the text has no words; give at least one")
    _require_few(run, tokens)
    return tokens


def _require_few(run: TrainedLanguageModel, tokens: Sequence[str]) -> None:
    if len(tokens) > MOST_WORDS:
        raise CorpusError(
            f"the text has {counted(len(tokens), run.unit)}, and the page shows at most "
            f"{MOST_WORDS:,}; give a part of it, or all of it to `bayesrnn inspect`"
        )


def open_run(path: Path) -> TrainedLanguageModel:
    """The run, which only predicts."""
    return TASK.open_run(path, device="cpu", for_inference=True)


TAB = Tab(
    title="Text",
    script="tasks/lm/tab.js",
    open=open_run,
    about=about_draws,
    questions={"read": Question(ReadOptions, read), "continue": Question(ContinueOptions, go_on)},
)
