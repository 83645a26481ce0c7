"""Generate text from a run, and see which words it was least sure of."""

from pathlib import Path

import torch

from bayesrnn.data.text import detokenize, known_tokens
from bayesrnn.data.vocabulary import EOS, UNK, Vocabulary
from bayesrnn.errors import ConfigError
from bayesrnn.progress import say
from bayesrnn.random import seeded
from bayesrnn.tasks.lm.task import TASK
from bayesrnn.tasks.lm.trained import TrainedLanguageModel


def generate(
    run: Path,
    prompt: str = "",
    words: int = 50,
    temperature: float = 1.0,
    top_k: int = 0,
    seed: int = 1,
    checkpoint: str = "best",
    device: str = "auto",
) -> str:
    """A continuation of `prompt`, as text."""
    trained = TASK.open_run(run, checkpoint, device, for_inference=True)
    trained.note_one_network("generate")
    tokens = prompt_tokens(prompt, trained.vocabulary)
    unknown = [token for token in tokens if token not in trained.vocabulary]
    if unknown:
        say(f"note: not in the vocabulary, read as {UNK}: {' '.join(unknown)}")
    return detokenize(continuation(trained, tokens, words, temperature, top_k, seed))


def prompt_tokens(prompt: str, vocabulary: Vocabulary) -> list[str]:
    """The prompt cut into words; the model is to go on, so its last sentence is not ended."""
    tokens = known_tokens(prompt, vocabulary)
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
    if not 0 <= temperature < float("inf"):
        raise ConfigError(f"--temperature is {temperature:g}; it has to be 0 or more")
    if words < 1:
        raise ConfigError(f"--words is {words}; it has to be 1 or more")
    if top_k < 0:
        raise ConfigError(f"--top-k is {top_k}; it has to be 0 (no limit) or more")
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
