"""Fine-tune a pruned network: train the weights that are left."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_map_only

from bayesrnn.data.batches import TrainingBatches
from bayesrnn.progress import progress_bar
from bayesrnn.random import RandomStreams
from bayesrnn.tasks.lm.trained import TrainedLanguageModel


def fine_tune(
    trained: TrainedLanguageModel,
    module: nn.Module,
    kept: Mapping[str, Tensor],
    epochs: int,
    lr: float,
    measure: Callable[[nn.Module], float],
) -> list[float]:
    """Train a pruned module further, in place; dropped weights stay zero.

    By gradient descent on the likelihood of the run's training text, with the run's minibatches,
    clipping and dropout. The module ends as it was after the epoch (or at the start) for which
    `measure` was lowest. Returns what it was at the start and after each epoch.
    """
    config = trained.config
    batches = TrainingBatches(
        trained.corpus().train.to(trained.device), config.batch_size, config.unroll
    )
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    masks = {name: kept[name].to(p) for name, p in parameters.items() if name in kept}
    optimiser = torch.optim.SGD(parameters.values(), lr)
    found = [measure(module)]
    best = copy.deepcopy(module.state_dict())
    words = epochs * len(batches) * batches.sequences * batches.steps
    streams = RandomStreams(config.seed)
    with progress_bar(words, " words", "fine-tuning") as bar, streams.as_default("fine-tuning"):
        for _ in range(epochs):
            state: Any = None
            module.train()
            for inputs, targets in batches:
                logits, state = module(inputs, state)
                state = tree_map_only(Tensor, Tensor.detach, state)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) * len(targets)
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                for name, mask in masks.items():
                    gradient = parameters[name].grad
                    if gradient is not None:
                        gradient.mul_(mask)
                if config.clip:
                    nn.utils.clip_grad_norm_(parameters.values(), config.clip)
                optimiser.step()
                bar.update(targets.numel())
            found.append(measure(module))
            if found[-1] == min(found):
                best = copy.deepcopy(module.state_dict())
    module.load_state_dict(best)
    module.eval()
    return found
