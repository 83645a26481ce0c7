"""Look at a text through the eyes of a run: what it expected at each word, and how sure it was."""

import sys
from dataclasses import asdict
from pathlib import Path

from bayesrnn.data import EOS, known_tokens, read_text
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.evaluation import Draws, Inspection, inspect_words
from bayesrnn.progress import progress_bar
from bayesrnn.random import seeded
from bayesrnn.report import (
    InspectedText,
    InspectedWord,
    NextWord,
    inspection_page,
    inspection_text,
    wants_colour,
)
from bayesrnn.tasks.generate import prompt_tokens
from bayesrnn.tasks.language_model import TrainedLanguageModel, load_language_model
from bayesrnn.tasks.output import columns, require_outputs, write_json, write_text


def inspect_text(
    run: Path,
    text: str | None = None,
    file: Path | None = None,
    samples: int = 20,
    top: int = 5,
    html: Path | None = None,
    json: Path | None = None,
    checkpoint: str = "best",
    seed: int = 1,
    device: str = "auto",
) -> str:
    """What the run makes of a text, for the terminal; also as a page and as JSON if asked for."""
    if samples < 0:
        raise ConfigError(f"--samples is {samples}; it has to be 0 (the mean network) or more")
    if top < 1:
        raise ConfigError(f"--top is {top}; it has to be 1 or more")
    if (text is None) == (file is None):
        given = "neither" if text is None else "both"
        raise ConfigError(f'{given} of --text and --file were given; give one: --text "..."')
    require_outputs(html, json)
    trained = load_language_model(run, checkpoint, device, for_inference=True)
    tokens = _tokens(trained, text, file)
    found = inspected(trained, tokens, samples, top, seed)
    if html is not None:
        write_text(inspection_page(found, top), html)
    if json is not None:
        write_json(asdict(found), json)
    return inspection_text(found, top, wants_colour(sys.stdout), columns())


def inspected(
    trained: TrainedLanguageModel, tokens: list[str], samples: int, top: int, seed: int
) -> InspectedText:
    """The figures of every word of a text that is cut into words."""
    vocabulary = trained.vocabulary
    # As in training, the end of a sentence comes before the first word, which has a chance so.
    ids = vocabulary.encode([EOS, *tokens]).to(trained.device)
    generator = seeded(seed)
    draws = Draws(trained.method, trained.net, samples, generator)
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
        next=[
            NextWord(vocabulary.words[number], probability, spread)
            for number, probability, spread in found.following
        ],
    )


def _tokens(trained: TrainedLanguageModel, text: str | None, file: Path | None) -> list[str]:
    """The words: a text given as it is goes on after its end, a file is whole."""
    if file is not None:
        tokens = known_tokens(read_text(file), trained.vocabulary)
    else:
        tokens = prompt_tokens(text or "", trained.vocabulary)
    if all(token == EOS for token in tokens):
        given = f"the file {file} has" if file is not None else f"--text is {text!r}, which has"
        raise CorpusError(f"{given} no words; give a text of at least one word")
    return tokens


def _words(
    trained: TrainedLanguageModel, tokens: list[str], found: Inspection
) -> list[InspectedWord]:
    vocabulary = trained.vocabulary
    nothing = [None] * len(tokens)
    columns = zip(
        tokens,
        (token in vocabulary for token in tokens),
        found.probability.tolist(),
        nothing if found.low is None else found.low.tolist(),
        nothing if found.high is None else found.high.tolist(),
        found.entropy.tolist(),
        found.aleatoric.tolist(),
        found.epistemic.tolist(),
        vocabulary.decode(found.likeliest),
        found.likeliest_probability.tolist(),
        strict=True,
    )
    return [InspectedWord(*column) for column in columns]
