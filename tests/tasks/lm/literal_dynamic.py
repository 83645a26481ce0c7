"""Dynamic evaluation word by word, by its definition: slow, and what the fast one is held to."""

import math
from itertools import pairwise

import torch
from torch.func import functional_call
from torch.nn import functional as F

SEGMENT = 4


def trainable(model):
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def word_by_word(model, weights, words, targets, state):
    """log p(target) for a few words in a row: a list, and the state after them."""
    found = []
    for word, target in zip(words, targets, strict=True):
        logits, state = functional_call(model, weights, (word.view(1, -1), state))
        found.append(F.log_softmax(logits[0], -1).gather(-1, target.view(-1, 1)).squeeze(-1))
    return found, state


def frozen(state):
    return state.detach() if isinstance(state, torch.Tensor) else tuple(s.detach() for s in state)


def literal(model, stream, step, segment=SEGMENT):
    """Dynamic evaluation by its definition; `step` maps weights and gradients to new weights."""
    trained = {name: weight.detach().clone() for name, weight in trainable(model).items()}
    weights, state, scores = trained, None, []
    pairs = list(pairwise(stream))
    for start in range(0, len(pairs), segment):
        weights = {name: weight.requires_grad_() for name, weight in weights.items()}
        words, targets = zip(*pairs[start : start + segment], strict=True)
        found, state = word_by_word(model, weights, words, targets, state)
        state = frozen(state)
        scores.extend(score.item() for score in found)
        gradients = torch.autograd.grad(-sum(score.sum() for score in found), weights.values())
        gradients = dict(zip(weights, gradients, strict=True))
        weights = {name: weight.detach() for name, weight in weights.items()}
        weights = step(trained, weights, gradients)
    return torch.tensor(scores, dtype=torch.double)


def literal_descent(lr, clip, norms=None):
    def step(trained, weights, gradients):
        norm = math.sqrt(sum((gradient**2).sum().item() for gradient in gradients.values()))
        if norms is not None:
            norms.append(norm)
        shrink = clip / norm if norm > clip else 1.0
        return {name: weights[name] - lr * shrink * gradients[name] for name in weights}

    return step


def literal_rms(lr, decay, epsilon, statistics, shares=None):
    # As published: each tensor's mean counts once, whatever its size.
    mean = sum(torch.sqrt(value).mean() for value in statistics.values()) / len(statistics)

    def step(trained, weights, gradients):
        new = {}
        for name, weight in weights.items():
            root = torch.sqrt(statistics[name])
            share = decay * root / mean
            if shares is not None:
                shares.append(share.max().item())
            share = torch.where(share > 1, torch.ones_like(share), share)
            new[name] = weight - lr * gradients[name] / (root + epsilon)
            new[name] = new[name] + share * (trained[name] - weight)
        return new

    return step
