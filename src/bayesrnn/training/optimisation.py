"""The optimiser by name, the learning-rate schedule, gradient clipping, and the KL's weight."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import torch
from torch import Tensor, nn

from bayesrnn.core.norms import total_norm
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import KLScale
from bayesrnn.training.problem import Minibatches

#: torch optimisers that cannot take a plain step on dense gradients of any shape.
_UNUSABLE = ("LBFGS", "Muon", "SparseAdam")

#: What torch's optimisers call their decay; `lambd` is that of ASGD.
_DECAYS = ("weight_decay", "lambd")


@dataclass(frozen=True)
class Schedule:
    """The learning rate: constant for `hold` epochs, then times `decay` in each epoch.

    start: the epoch that the course begins with, from 0 on.
    """

    lr: float
    hold: int
    decay: float
    start: int = 0

    def at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        return float(self.lr * self.decay ** max(0, epoch - self.start + 1 - self.hold))

    def stretched(self, epochs: int, to: int) -> "Schedule":
        """The course of `epochs` in another number: same share of constant rate, same end."""
        if epochs == to:
            return self
        hold = max(1, round(self.hold * to / epochs))
        end = self.decay ** (epochs - self.hold)
        return Schedule(self.lr, hold, end ** (1 / max(1, to - hold)))


def _optimiser_type(wanted: str) -> Callable[..., torch.optim.Optimizer]:
    known = {
        name.lower(): value
        for name, value in vars(torch.optim).items()
        if inspect.isclass(value)
        and issubclass(value, torch.optim.Optimizer)
        and value is not torch.optim.Optimizer
        and name not in _UNUSABLE
    }
    if str(wanted).lower() not in known:
        raise ConfigError(
            f"--optimizer is {wanted}; of torch's optimisers these can be used: "
            f"{', '.join(sorted(known))}"
        )
    return known[wanted.lower()]


def default_lr(name: str) -> float:
    """The learning rate that torch gives an optimiser by default."""
    return float(inspect.signature(_optimiser_type(name)).parameters["lr"].default)


def make_optimiser(
    name: str,
    groups: list[dict[str, Any]],
    lr: float,
    weight_decay: float,
    undecayed: Iterable[nn.Parameter] = (),
) -> torch.optim.Optimizer:
    """A torch optimiser for groups of parameters, by its class's name in upper or lower case.

    `weight_decay` is all the decay there is, whatever torch's default for this optimiser, and none
    of it is applied to the parameters `undecayed`.
    """
    make = _optimiser_type(name)
    known = inspect.signature(make).parameters
    if weight_decay and "weight_decay" not in known:
        raise ConfigError(f"--optimizer {name} has no option weight_decay")
    if weight_decay:
        groups = _split_by_decay(groups, undecayed)
    options = {"lr": lr, "weight_decay": weight_decay, "lambd": 0.0}
    return make(groups, **{key: value for key, value in options.items() if key in known})


def _split_by_decay(
    groups: list[dict[str, Any]], undecayed: Iterable[nn.Parameter]
) -> list[dict[str, Any]]:
    """The groups cut where decay begins or ends, in the same order of the parameters.

    The parts of one group are still clipped together, as `clip_group` says.
    """
    spared = set(map(id, undecayed))
    made = []
    for number, group in enumerate(groups):
        for is_spared, part in groupby(group["params"], lambda parameter: id(parameter) in spared):
            own = {"weight_decay": 0.0} if is_spared else {}
            made.append({**group, "params": list(part), "clip_group": number, **own})
    return made if spared else groups


def restore_optimiser(optimiser: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Continue where `saved`, its `state_dict`, was taken.

    The decay is that of the configuration. Earlier versions did not cut the groups by decay, or
    decayed by torch's default where the configuration said 0.
    """
    groups = optimiser.state_dict()["param_groups"]
    order, before = (
        [number for group in each for number in group["params"]]
        for each in (groups, saved["param_groups"])
    )
    if len(groups) != len(saved["param_groups"]) and order == before:
        saved = {**saved, "param_groups": groups}
    optimiser.load_state_dict(saved)
    for group, configured in zip(optimiser.param_groups, groups, strict=True):
        group.update({key: configured[key] for key in _DECAYS if key in configured})


def gradient_norms(
    optimiser: torch.optim.Optimizer, known: float | None = None, of_group: int = 0
) -> list[float]:
    """The norm of all gradients of each group that is clipped; that of one may be known already."""
    return [
        known
        if known is not None and number == of_group
        else total_norm([grad for part in parts for grad in _gradients(part["params"])])
        for number, parts in enumerate(_clip_groups(optimiser))
    ]


def clipped_step(
    optimiser: torch.optim.Optimizer, limit: float | None, norms: Sequence[float]
) -> None:
    """One step with the gradients of each group scaled down to the norm `limit`.

    `norms` are those of the groups before. Where a step is the gradient times the learning rate
    and nothing else, the rate is scaled instead, which saves a pass over all gradients.
    """
    rates = [group["lr"] for group in optimiser.param_groups]
    for group, factor in _too_long(optimiser, limit, norms):
        if _is_linear(optimiser, group):
            group["lr"] *= factor
        else:
            torch._foreach_mul_(_gradients(group["params"]), factor)
    optimiser.step()
    for group, rate in zip(optimiser.param_groups, rates, strict=True):
        group["lr"] = rate


def clip_gradients(optimiser: torch.optim.Optimizer, limit: float, norms: Sequence[float]) -> None:
    """Scale the gradients of each group down to the norm `limit`; `norms` are those before."""
    for group, factor in _too_long(optimiser, limit, norms):
        torch._foreach_mul_(_gradients(group["params"]), factor)


def _too_long(
    optimiser: torch.optim.Optimizer, limit: float | None, norms: Sequence[float]
) -> Iterator[tuple[dict[str, Any], float]]:
    """The groups whose gradients are above the limit, and the factors that bring them down."""
    for parts, norm in zip(_clip_groups(optimiser), norms, strict=True):
        if limit is not None and norm > limit:
            yield from ((group, limit / (norm + 1e-6)) for group in parts)


def _clip_groups(optimiser: torch.optim.Optimizer) -> list[list[dict[str, Any]]]:
    """The optimiser's groups, those together whose gradients are clipped as one."""
    found: dict[int, list[dict[str, Any]]] = {}
    for number, group in enumerate(optimiser.param_groups):
        found.setdefault(group.get("clip_group", number), []).append(group)
    return list(found.values())


def _gradients(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def _is_linear(optimiser: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    plain = type(optimiser) is torch.optim.SGD
    return plain and not (group["momentum"] or group["weight_decay"])


WEIGHTINGS: Final = ("uniform", "geometric")


def kl_weight(weighting: str, number: int, count: int) -> float:
    """The share of minibatch `number` (from 0) of `count`; the shares of an epoch add up to 1.

    uniform: 1/M each. geometric: 2^(M-i) / (2^M - 1) for the i-th (Blundell et al. 2015, section
    3.4): the prior rules the first minibatches, the data the later ones.
    """
    if weighting == "uniform":
        return 1 / count
    # Numerator and denominator are divided by 2^M, which overflows for a thousand minibatches.
    return float(2.0 ** -(number + 1) / (1 - 2.0**-count))


def minibatch_kl_scale(weighting: str, number: int, count: int, sequences: int) -> KLScale:
    """The factors on the KL in minibatch `number` of `count`, its loss a mean over sequences."""
    weight = kl_weight(weighting, number, count)
    return KLScale(epoch=weight / sequences, minibatch=1 / sequences)


def problem_kl_scale(weighting: str, number: int, batches: Minibatches) -> KLScale:
    """The factors on the KL in a minibatch of an epoch.

    An epoch whose minibatches overlap meets each target `passes` times, and is charged the KL as
    often: so each target of the training set is weighed once against it.
    """
    scale = minibatch_kl_scale(weighting, number, len(batches), batches.sequences)
    return scale.times(getattr(batches, "passes", 1.0))
