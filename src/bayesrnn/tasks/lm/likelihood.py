"""How probable a method finds a text: negative log-likelihood and its bound."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bayesrnn.data.batches import evaluation_batches
from bayesrnn.methods.base import Method, Network, Objective, Outcome
from bayesrnn.runs.held_out import Chunk
from bayesrnn.uncertainty.bound import SummedMinibatch
from bayesrnn.uncertainty.draws import Draws, networks_to_read
from bayesrnn.uncertainty.likelihood import Likelihood
from bayesrnn.uncertainty.scaling import UNSCALED, Scaling

#: Logits of a chunk. A draw is made anew for each chunk, so they must not be small.
_CHUNK = 1 << 23


def text_minibatches(stream: Tensor, streams: int, unroll: int) -> Iterable[SummedMinibatch]:
    """The minibatches of a text, each with its summed loss."""
    for inputs, targets, mask in evaluation_batches(stream, streams, unroll):
        yield _text_objective(inputs, targets, mask), int(mask.sum())


def _text_objective(inputs: Tensor, targets: Tensor, mask: Tensor) -> Callable[[Any], Objective]:
    def from_state(state: Any) -> Objective:
        def objective(network: Network) -> Outcome:
            logits, after = network(inputs, state)
            return Outcome(F.cross_entropy(logits[mask], targets[mask], reduction="sum"), after)

        return objective

    return from_state


def text_chunks(stream: Tensor, streams: int, vocabulary: int) -> list[Chunk]:
    """The predictions of a text, as many at a time as fit in memory."""
    unroll = max(1, _CHUNK // (streams * vocabulary))
    return [_text_chunk(*batch) for batch in evaluation_batches(stream, streams, unroll)]


def _text_chunk(inputs: Tensor, targets: Tensor, mask: Tensor) -> Chunk:
    def outputs(network: Network, state: Any) -> tuple[Tensor, Any]:
        logits, after = network(inputs, state)
        return logits[mask], after

    return Chunk(outputs, targets[mask])


@torch.no_grad()
def target_log_probs(
    network: Network,
    stream: Tensor,
    streams: int = 1,
    unroll: int = 35,
    advance: Callable[[int], object] | None = None,
) -> Tensor:
    """log p(token | all tokens before it in its part), for every token of `stream` but the first.

    With one stream the state is carried from zero through the whole text, and the result does not
    depend on `unroll`. More streams are faster, and each starts from a zero state.
    """
    state: Any = None
    columns: list[list[Tensor]] = [[] for _ in range(streams)]
    for inputs, targets, mask in evaluation_batches(stream, streams, unroll):
        logits, state = network(inputs, state)
        log_probs = -F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        log_probs = log_probs.view(targets.shape)
        for column, part, kept in zip(columns, log_probs.T, mask.T, strict=True):
            column.append(part[kept])
        if advance is not None:
            advance(int(mask.sum()))
    return torch.cat([part for column in columns for part in column])


def likelihood(
    method: Method[Any],
    net: nn.Module,
    stream: Tensor,
    samples: int = 0,
    generator: torch.Generator | None = None,
    streams: int = 1,
    unroll: int = 35,
    advance: Callable[[int], object] | None = None,
    scaling: Scaling = UNSCALED,
) -> Likelihood:
    """The likelihood of a text under the mean network (`samples` = 0) or averaged over draws.

    Averaging is of probabilities: log (1/S) sum_s p_s(token). Each draw is held over the whole
    text. Memory does not grow with the number of draws.
    """
    generator = generator or torch.Generator().manual_seed(0)
    draws = Draws(method, net, samples, generator, scaling)
    total = torch.tensor(-math.inf, dtype=torch.double)
    for network in draws.networks():
        drawn = target_log_probs(network, stream, streams, unroll, advance)
        total = torch.logaddexp(total, drawn.double().cpu())
    log_probs = total - math.log(networks_to_read(method, net, samples))
    return Likelihood(-log_probs.mean().item(), len(log_probs))
