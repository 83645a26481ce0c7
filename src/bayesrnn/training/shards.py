"""The loss of a minibatch, from all of it at once or shard by shard.

A minibatch can be cut into shards: some of its sequences each, with a recurrent state and noise of
their own. How many there are belongs to the run; how many processes share them does not, so that
the same run can go on with more or fewer. The loss is the mean over the shards, and so is its
gradient, which is added up in one order wherever the shards are.
"""

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from bayesrnn.errors import ConfigError, PeerError
from bayesrnn.methods.base import Drawn, KLScale, Method, MinibatchLoss, Network, Objective, Outcome
from bayesrnn.training.distributed import Group, in_order
from bayesrnn.training.problem import Minibatches, Problem

#: In `bfloat16`, torch decides by operation what is computed with 16 bits: matrix products and
#: recurrent layers are, losses and KLs are not. Parameters, their gradients and steps have 32.
PRECISIONS = ("float32", "bfloat16")

#: The noise of shards: each draws its own weights, or all share one draw.
SHARD_NOISES = ("own", "shared")


class Whole:
    """The loss of a minibatch from all of it at once.

    precision: of the network's products (`PRECISIONS`).
    """

    def __init__(
        self,
        net: nn.Module,
        method: Method[Any],
        problem: Problem,
        precision: str,
    ) -> None:
        self.net, self.method, self.problem = net, method, problem
        self.precision = precision

    def forward_pass(self) -> torch.autocast:
        """What a forward pass runs in."""
        device = next(self.net.parameters()).device.type
        return torch.autocast(device, torch.bfloat16, enabled=self.precision == "bfloat16")

    def loss(
        self, batches: Minibatches, number: int, state: Any, kl_scale: KLScale
    ) -> MinibatchLoss:
        """The loss of a minibatch from a carried state."""
        objective = self.problem.objective(batches[number], state)
        with self.forward_pass():
            return self.method.loss(self.net, objective, kl_scale)

    def saved(self, state: Any) -> tuple[Any, list[Any] | None]:
        """The carried state as a checkpoint holds it, and what each shard has of its own."""
        return state, None

    def restored(self, state: Any, shards: list[Any] | None) -> Any:
        """Continue where these were saved; gives the carried state."""
        del shards
        return state


class Contribution(NamedTuple):
    """What a shard adds: gradients, None where there is none, and further numbers."""

    gradients: Sequence[Tensor | None]
    numbers: Sequence[float]


class Sharded(Whole):
    """The mean loss of the shards that the processes of a group have between them.

    The carried state is a list of those of this process's own shards.
    """

    def __init__(self, whole: Whole, shards: int, group: Group) -> None:
        super().__init__(whole.net, whole.method, whole.problem, whole.precision)
        self.shards, self.group = shards, group
        count = shards // group.size
        #: The numbers of the shards that this process works on.
        self.own = range(group.rank * count, (group.rank + 1) * count)
        self.parameters = [weight for weight in self.net.parameters() if weight.requires_grad]

    def objective(self, batches: Any, number: int, state: Any, shard: int) -> Objective:
        """The loss of a shard of a minibatch."""
        size = batches.sequences // self.shards
        part = batches.part(number, slice(shard * size, (shard + 1) * size))
        own = None if state is None else state[shard - self.own.start]
        return self.problem.objective(part, own)

    def mean(self, contribution: Callable[[int], Contribution]) -> Contribution:
        """The mean of the contributions of all shards; of this process's own ones by number.

        All numbers travel in one vector.
        """
        shapes: list[torch.Size | None] = []

        def flat(shard: int) -> Tensor:
            gradients, numbers = contribution(shard)
            shapes[:] = [None if one is None else one.shape for one in gradients]
            there = [one.flatten() for one in gradients if one is not None]
            return torch.cat([*there, there[0].new_tensor(numbers)])

        total = self.group.total(in_order(flat, self.own.start, len(self.own)))
        total /= self.shards
        sizes = [shape.numel() for shape in shapes if shape is not None]
        *parts, numbers = total.split_with_sizes([*sizes, len(total) - sum(sizes)])
        made = iter(parts)
        gradients = [None if shape is None else next(made).view(shape) for shape in shapes]
        return Contribution(gradients, numbers.tolist())

    def saved(self, state: Any) -> tuple[Any, list[Any] | None]:
        """The states of all shards, each with what its method has to keep."""
        own = [
            {"carried": None if state is None else state[place], **self.kept(shard)}
            for place, shard in enumerate(self.own)
        ]
        found = self.group.gather({"weights": self._checksum(), "shards": own})
        if len({each["weights"] for each in found}) > 1:
            raise PeerError(
                "the processes no longer have the same weights, so nothing is saved; give all of "
                "them as many threads (--threads) on the same kind of processor, and go on from "
                "the last checkpoint with --resume"
            )
        return None, [kept for each in found for kept in each["shards"]]

    def _checksum(self) -> int:
        """A number that tells weights apart; 0 where there is nobody to compare with."""
        found = 0
        for weight in self.parameters if self.group.size > 1 else ():
            numbers = weight.detach().cpu().contiguous().view(-1).view(torch.uint8)
            found = zlib.crc32(numbers.numpy().data, found)
        return found

    def restored(self, state: Any, shards: list[Any] | None) -> Any:
        """Continue with this process's own shards."""
        if shards is None or len(shards) != self.shards:
            raise ValueError(f"it is not of a run with {self.shards} shards")
        own = [shards[shard] for shard in self.own]
        for shard, kept in zip(self.own, own, strict=True):
            self.restore(shard, kept)
        carried = [kept["carried"] for kept in own]
        return None if carried[0] is None else carried

    def kept(self, shard: int) -> dict[str, Any]:
        """What has to be saved of a shard beside its carried state."""
        del shard
        return {}

    def restore(self, shard: int, kept: dict[str, Any]) -> None:
        """Continue a shard where `kept` was taken."""


class OwnNoise(Sharded):
    """Each shard has a draw of its own, which varies less in the mean than one for all.

    apart: whether the term of the loss that belongs to the epoch has a gradient by itself.
    """

    def __init__(self, whole: Whole, shards: int, group: Group, apart: bool) -> None:
        super().__init__(whole, shards, group)
        self.methods = {shard: self.method.of_shard(shard) for shard in self.own}
        self.apart = apart

    def loss(
        self, batches: Minibatches, number: int, state: Any, kl_scale: KLScale
    ) -> MinibatchLoss:
        """The mean of the losses of all shards; each is charged as a minibatch of its own."""
        scale = kl_scale._replace(minibatch=kl_scale.minibatch * self.shards)
        first: list[MinibatchLoss] = []
        states: list[Any] = []

        def contribution(shard: int) -> Contribution:
            objective = self.objective(batches, number, state, shard)
            with self.forward_pass():
                loss = self.methods[shard].loss(self.net, objective, scale)
            kl = loss.prior_kl if self.apart else None
            terms = [loss.total] if kl is None else [loss.total - kl, kl]
            gradients = [
                gradient
                for term in terms
                for gradient in torch.autograd.grad(
                    term, self.parameters, retain_graph=term is not terms[-1], allow_unused=True
                )
            ]
            # Of the others the state alone is kept: each holds its draw of all weights.
            states.append(loss.state)
            first[:] = first or [loss._replace(total=loss.total.detach(), prior_kl=None)]
            values = [term.item() for term in terms]
            return Contribution(gradients, [*values, loss.seen_kl, *loss.terms.values()])

        gradients, numbers = self.mean(contribution)
        count = len(gradients) // len(self.parameters)
        values, (seen_kl, *terms) = numbers[:count], numbers[count:]
        made = _known(values, gradients, self.parameters)
        return first[0]._replace(
            total=made[0] if count == 1 else made[0] + made[1],
            state=_states(states),
            terms=dict(zip(first[0].terms, terms, strict=True)),
            gradient_norm=lambda: None,
            seen_kl=seen_kl,
            prior_kl=None if count == 1 else made[1],
        )

    def kept(self, shard: int) -> dict[str, Any]:
        """The state of its method, and its random streams."""
        method = self.methods[shard]
        return {"streams": method.streams.state(), "method": method.state()}

    def restore(self, shard: int, kept: dict[str, Any]) -> None:
        """Continue its method and its random streams."""
        self.methods[shard].streams.restore(kept["streams"])
        self.methods[shard].restore(kept["method"])


class SharedNoise(Sharded):
    """All shards have the same draw: only the gradient by the drawn weights has to travel.

    Each process goes from there to the gradients by means and widths, and charges the KL, alone.
    """

    def loss(
        self, batches: Minibatches, number: int, state: Any, kl_scale: KLScale
    ) -> MinibatchLoss:
        """The method's loss, whose objective is the mean over all shards."""
        with self.forward_pass():
            objective = partial(self._everywhere, batches, number, state)
            return self.method.loss(self.net, objective, kl_scale)

    def _everywhere(
        self, batches: Minibatches, number: int, state: Any, network: Network
    ) -> Outcome:
        drawn = list(network.weights.values()) if isinstance(network, Drawn) else []
        leaves = [weight.detach().requires_grad_() for weight in drawn]
        run = network.with_values(leaves) if isinstance(network, Drawn) else network
        states = []

        def contribution(shard: int) -> Contribution:
            nll, after = self.objective(batches, number, state, shard)(run)
            states.append(after)
            inputs = [*leaves, *self.parameters]
            with torch.autocast(nll.device.type, enabled=False):  # it is for forward passes alone
                gradients = torch.autograd.grad(nll, inputs, allow_unused=True)
            return Contribution(gradients, [nll.item()])

        gradients, values = self.mean(contribution)
        (nll,) = _known(values, gradients, [*drawn, *self.parameters])
        return Outcome(nll, _states(states))


def parts_of(whole: Whole, shards: int, noise: str, apart: bool, group: Group) -> Whole:
    """How the loss of a minibatch comes about, for so many shards with noise of a kind.

    apart: whether the gradient of what belongs to the epoch is needed by itself.
    """
    if shards == 1:
        return whole
    if not hasattr(whole.problem.minibatches(0), "part"):
        raise ConfigError(
            f"--shards is {shards}, but the minibatches of this task cannot be cut; leave it out"
        )
    if noise == "shared" or whole.method.own_optimiser:
        return SharedNoise(whole, shards, group)
    return OwnNoise(whole, shards, group, apart)


def _states(states: list[Any]) -> list[Any] | None:
    return None if states[0] is None else states


def _known(
    values: Sequence[float], gradients: Sequence[Tensor | None], inputs: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Numbers whose gradients by the inputs are known, those of each number in turn."""
    count = len(inputs)
    lists = [gradients[start : start + count] for start in range(0, len(gradients), count)]
    places = [p for p in range(count) if any(one[p] is not None for one in lists)]
    made: tuple[Tensor, ...] = _Known.apply(  # type: ignore[no-untyped-call]
        values,
        [[one[place] for place in places] for one in lists],
        *(inputs[place] for place in places),
    )
    return made


class _Known(torch.autograd.Function):
    """Numbers with gradients that were computed before."""

    @staticmethod
    def forward(
        ctx: Any, values: Sequence[float], gradients: list[list[Tensor | None]], *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.gradients = gradients
        return tuple(inputs[0].new_tensor(value) for value in values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *by_values: Tensor) -> tuple[Tensor | None, ...]:
        found: list[Tensor | None] = [None] * len(ctx.gradients[0])
        for factor, gradients in zip((one.item() for one in by_values), ctx.gradients, strict=True):
            for place, gradient in enumerate(gradients):
                if factor and gradient is not None:
                    scaled = gradient if factor == 1 else gradient * factor
                    before = found[place]
                    found[place] = scaled if before is None else before + scaled
        return None, None, *found
