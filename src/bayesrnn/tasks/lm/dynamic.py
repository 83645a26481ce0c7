"""Dynamic evaluation: a language model that goes on learning from the text it is scored on.

Each segment of the text is scored first, with weights that have seen only what came before it, and
then learnt from with one gradient step (Mikolov et al. 2010; Krause et al. 2018). All of this
happens on a copy; the trained network stays as it is.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

from bayesrnn.core.norms import total_norm
from bayesrnn.data.batches import Batch, evaluation_batches
from bayesrnn.errors import ConfigError, TrainingDivergedError
from bayesrnn.nn.dropout import never_drop

#: A loss per word, in nats, from which no training comes back.
_HOPELESS = 1e4

#: Changes the weights that it was made for, in place, given the gradients of the latest segment.
Update = Callable[[tuple[Tensor, ...]], None]


@dataclass(frozen=True)
class GradientDescent:
    """w <- w - lr * g, with all gradients g together cut down to the norm `clip`.

    A clip of 0 or None is no limit.
    """

    lr: float = 0.1
    clip: float | None = 5.0

    def start(self, weights: Mapping[str, Tensor]) -> Update:
        """The update of these weights."""
        tensors, limit = list(weights.values()), self.clip or math.inf

        @torch.no_grad()
        def update(gradients: tuple[Tensor, ...]) -> None:
            merged = [g.coalesce() if g.is_sparse else g for g in gradients]
            values = [g.values() if g.is_sparse else g for g in merged]
            norm = total_norm(values) if limit < math.inf else 0.0
            scale = limit / norm if norm > limit else 1.0
            for tensor, gradient in zip(tensors, merged, strict=True):
                tensor.add_(gradient, alpha=-self.lr * scale)

        return update


@dataclass(frozen=True)
class RootMeanSquare:
    """w <- w - lr * g / (s + epsilon) + min(decay * s / mean(s), 1) * (w_trained - w).

    s is the root of the mean squared gradient of each weight on the training text, `statistics`.
    mean(s) is the mean over the weight tensors of the mean of s in each, so that a bias counts as
    much as a matrix. A weight that training text pulls at hard moves less and returns to its
    trained value faster (Krause et al. 2018). There is no clipping. Their program has lr 5e-5,
    decay 2e-3 and, for the mean over a segment of 5 words, epsilon 2e-5, which is 1e-4 for the sum.
    """

    lr: float
    decay: float
    statistics: Mapping[str, Tensor] = field(repr=False, compare=False)
    epsilon: float = 1e-4

    def start(self, weights: Mapping[str, Tensor]) -> Update:
        """The update of these weights, which hold their trained values."""
        tensors = list(weights.values())
        trained = [tensor.detach().clone() for tensor in tensors]
        roots = [self.statistics[name].to(weight).sqrt() for name, weight in weights.items()]
        means = [root.mean(dtype=torch.double).item() for root in roots if root.numel()]
        mean = sum(means) / len(means)
        if not 0 < mean < math.inf:
            raise ConfigError(
                f"the gradient statistics have a mean of {mean:g}, which has to be a finite number "
                "above 0; gather them on training text, with a network whose loss is finite"
            )
        pulls = [(root * (self.decay / mean)).clamp_(max=1) for root in roots]
        inverses = [root.add_(self.epsilon).reciprocal_() for root in roots]

        @torch.no_grad()
        def update(gradients: tuple[Tensor, ...]) -> None:
            if self.decay:
                torch._foreach_lerp_(tensors, trained, pulls)
            torch._foreach_addcmul_(tensors, gradients, inverses, value=-self.lr)

        return update


Rule = GradientDescent | RootMeanSquare


@torch.enable_grad()
def gradient_statistics(
    module: nn.Module, batches: Iterable[Batch], advance: Callable[[int], object] | None = None
) -> dict[str, Tensor]:
    """The squared gradient of each weight, averaged over minibatches of training text.

    The state is carried from each minibatch to the next. As in training, the loss is summed over
    time and averaged over the sequences, so gradients grow with the time steps: take minibatches
    as long as the segments of the evaluation. `advance` is called with the words of each minibatch.
    """
    net, weights = copied(module)
    squares = [torch.zeros_like(weight, requires_grad=False) for weight in weights.values()]
    state: Any = None
    count = 0
    for inputs, targets in batches:
        log_probs, state = _log_probs(net, inputs, targets, state)
        gradients = _gradients(-log_probs.sum(0).mean(), weights)
        torch._foreach_addcmul_(squares, gradients, gradients)
        count += 1
        if advance is not None:
            advance(targets.numel())
    torch._foreach_div_(squares, count)
    return dict(zip(weights, squares, strict=True))


@torch.enable_grad()
def dynamic_log_probs(
    module: nn.Module,
    stream: Tensor,
    rule: Rule,
    segment: int = 5,
    advance: Callable[[int], object] | None = None,
) -> Tensor:
    """log p(token | all tokens before it), for every token of `stream` but the first.

    The weights that score a segment of `segment` tokens have learnt from all earlier segments.
    As in training, the loss of a segment is the sum over its tokens. The state is carried from
    zero through the whole text, computed before each update and without a gradient.

    `module` maps tokens [time, batch] and a state to logits [time, batch, words] and a state. It
    is left unchanged; the copy that learns has its dropout off.
    """
    net, weights = copied(module)
    if isinstance(rule, GradientDescent):
        _keep_read_rows(net)
    update = rule.start(weights)
    state: Any = None
    scores: list[Tensor] = []
    done, predictions = 0, len(stream) - 1
    for inputs, targets, _ in evaluation_batches(stream, 1, segment):
        log_probs, state = _log_probs(net, inputs, targets, state)
        loss = -log_probs.sum()
        if not (value := loss.item()) < _HOPELESS * len(targets):
            raise _divergence(value, done, rule.lr)
        scores.append(log_probs.detach().flatten())
        done += len(targets)
        if done < predictions:  # nothing is left to learn for after the last segment
            update(_gradients(loss, weights))
        if advance is not None:
            advance(len(targets))
    return torch.cat(scores)


def copied(module: nn.Module) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """A copy in which nothing is dropped and gradients flow, and its trainable weights by name.

    Recurrent layers alone are in train mode: cuDNN has no backward pass for them otherwise.
    """
    net = copy.deepcopy(module).eval()
    for layer in net.modules():
        if isinstance(layer, nn.RNNBase):
            never_drop(layer)
            layer.train()
            layer.flatten_parameters()
    weights = {name: weight for name, weight in net.named_parameters() if weight.requires_grad}
    return net, weights


def _keep_read_rows(net: nn.Module) -> None:
    """Let the gradient of an embedding hold the rows of the words that were read, and no zeros.

    A segment reads a few words of thousands. Rules that move unread rows too cannot have this, and
    torch has it neither for gradients that are divided by frequencies, nor for weights that are
    computed from others, nor on Apple's GPUs.
    """
    for layer in net.modules():
        if isinstance(layer, nn.Embedding) and "weight" in layer._parameters:
            on_apple = layer.weight.device.type == "mps"
            layer.sparse = not (layer.scale_grad_by_freq or on_apple)


def _log_probs(net: nn.Module, inputs: Tensor, targets: Tensor, state: Any) -> tuple[Tensor, Any]:
    """log p(target) [time, batch], and the state to carry on, without its gradient."""
    logits, state = net(inputs, state)
    nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return -nll.view(targets.shape), tree_map_only(Tensor, Tensor.detach, state)


def _gradients(loss: Tensor, weights: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)


def _divergence(loss: float, done: int, lr: float) -> TrainingDivergedError:
    if not done:
        return TrainingDivergedError(
            f"the network cannot be evaluated: its loss is {loss:g} from the start"
        )
    return TrainingDivergedError(
        f"dynamic evaluation diverged at word {done + 1} with lr {lr:g}: the loss became {loss:g}; "
        "give a lower --dynamic-lr"
    )
