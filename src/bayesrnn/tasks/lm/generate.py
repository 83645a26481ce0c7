"""Generate text from a run."""

from dataclasses import dataclass

import torch

from bayesrnn.data.tokens import Tokeniser
from bayesrnn.data.vocabulary import EOS, UNK
from bayesrnn.options import option
from bayesrnn.progress import say, visible
from bayesrnn.random import seeded
from bayesrnn.runs.arguments import RunOrFileOptions, seed_option
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(RunOrFileOptions):
    """How a text begins, and how it goes on."""

    prompt: str = option("", "how the text begins", metavar="TEXT")
    words: int = option(
        50, "how many words to add; characters or byte pairs, if it was trained on them", ge=1
    )
    temperature: float = option(
        1.0, "below 1 safer, above 1 wilder, 0 always the likeliest word", ge=0
    )
    top_k: int = option(
        0, "choose among this many likeliest words only; 0: among all", ge=0, zero="no limit"
    )
    seed: int = seed_option("another seed gives another text")


def generate(options: GenerateOptions) -> str:
    """A continuation of the prompt, as text."""
    trained = TASK.open_run(options.run, options.checkpoint, options.device, for_inference=True)
    trained.note_one_network("generate")
    tokens = prompt_tokens(options.prompt, trained.tokeniser)
    unknown = [token for token in tokens if token not in trained.vocabulary]
    if unknown:
        say(f"note: not in the vocabulary, read as {UNK}: {' '.join(unknown)}")
    made = continuation(
        trained,
        tokens,
        options.words,
        temperature=options.temperature,
        top_k=options.top_k,
        seed=options.seed,
    )
    return visible(trained.tokeniser.text(made))


def prompt_tokens(prompt: str, tokeniser: Tokeniser) -> list[str]:
    """The prompt cut into tokens; the model is to go on, so its last sentence is not ended."""
    tokens = tokeniser.tokens(prompt)
    return tokens[:-1] if tokens and tokens[-1] == EOS else tokens


@torch.no_grad()
def continuation(
    trained: TrainedLanguageModel,
    tokens: list[str],
    words: int,
    temperature: float = 1.0,
    top_k: int = 0,
    seed: int = 1,
) -> list[str]:
    """`tokens` and `words` more, drawn one after the other from the mean network.

    Temperature 0 always takes the most probable word; `top_k` > 0 allows only that many. The word
    for unknown words is never drawn.
    """
    vocabulary = trained.vocabulary
    generator = seeded(seed)
    network = trained.method.mean(trained.net)
    ids = vocabulary.encode([EOS, *tokens]).to(trained.device)
    state = None
    result = list(tokens)
    for _ in range(words):
        logits, state = network(ids[:, None], state)
        scores = logits[-1, 0].cpu().double()
        if UNK in vocabulary:
            scores[vocabulary.index(UNK)] = -torch.inf
        if top_k:
            least = scores.topk(min(top_k, len(scores))).values[-1]
            scores[scores < least] = -torch.inf
        if temperature == 0:
            chosen = scores.argmax()
        else:
            chosen = torch.multinomial((scores / temperature).softmax(0), 1, generator=generator)
        ids = chosen.reshape(1).to(trained.device)
        result += vocabulary.decode(ids)
    return result
