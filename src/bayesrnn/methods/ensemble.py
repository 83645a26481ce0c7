"""ensemble: networks trained from different starts (Lakshminarayanan et al. 2017).

Each member is trained by another method, `base`, with its own weights and random streams;
prediction averages their probabilities. Either each member is trained in a round of its own, and
its best epoch stays; or, side by side, each minibatch trains all of them. A round may also start
where the one before it ended, with the learning rate up again: the members are then snapshots of
one course (Huang et al. 2017), which takes fewer epochs and makes members that are more alike.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, ClassVar, cast, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Self

from bayesrnn.core.widths import WidthSGD
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import (
    Hints,
    KLScale,
    Method,
    MinibatchLoss,
    Network,
    Objective,
    Outcome,
)
from bayesrnn.options import CheckedOptions, option
from bayesrnn.random import RandomStreams

#: The entry of a carried state that holds the states of all members.
_STATES = "members"


@dataclass(frozen=True)
class EnsembleOptions(CheckedOptions):
    """Options of an ensemble; those of its base come beside them."""

    base: str = option(
        "plain",
        "method that trains each member; its own options can be given, too",
        shown=lambda options: f"{options.get('members')} x {options['base']}",
    )
    members: int = option(5, "networks in the ensemble", ge=2, le=1000)
    side_by_side: bool = option(
        False, "train all members on each minibatch, instead of one member after the other"
    )
    start: str = option(
        "anew",
        "where a member after the first starts: anew, at initial weights of its own; previous, "
        "where the member before it ended, with the learning rate up again: snapshots of one "
        "course (Huang et al. 2017), which is cheaper",
        choices=("anew", "previous"),
        shown=lambda options: "snapshots" if options.get("start") == "previous" else "",
    )
    later_epochs: float = option(
        0.3,
        "--start previous: epochs of each member after the first, as a share of those of the first",
        gt=0,
        le=1,
    )

    def __post_init__(self) -> None:
        _base_type(self.base)
        super().__post_init__()
        self.base_options()
        if self.side_by_side and self.start == "previous":
            raise ConfigError(
                "--start is previous, but with --side-by-side no member is trained before another; "
                "leave one of them out"
            )

    def base_options(self) -> Any:
        """The options of the base alone."""
        own = _base_type(self.base).options_type
        values = {item.name: getattr(self, item.name, item.default) for item in fields(own)}
        return own(**values)


class Members(nn.Module):
    """The members' networks. The first `trained` of them are trained or in training."""

    trained: Tensor

    def __init__(self, members: list[nn.Module], trained: int) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.register_buffer("trained", torch.tensor(trained))


class Ensemble(Method[EnsembleOptions, Members]):
    """Minimise the base's loss for each member, independently of the others.

    Member 0 is what the base alone makes of the same seed; the seeds of the others are derived from
    it, see `member_seed`.
    """

    name: ClassVar[str] = "ensemble"
    summary: ClassVar[str] = "several networks of another method (Lakshminarayanan et al. 2017)"
    options_type: ClassVar[type] = EnsembleOptions
    can_drop: ClassVar[bool] = False
    mean_label: ClassVar[str] = "one member"
    has_mean: ClassVar[bool] = False

    def __init__(self, options: EnsembleOptions, streams: RandomStreams) -> None:
        super().__init__(options, streams)
        base, own = _base_type(options.base), options.base_options()
        seeds = [member_seed(streams.seed, number) for number in range(options.members)]
        #: The base's method for each member, with random streams of its own.
        self.bases = [base(own, RandomStreams(seed)) for seed in seeds]

    def of_shard(self, number: int) -> Self:
        """With randomness of its own for each member."""
        made = super().of_shard(number)
        made.bases = [base.of_shard(number) for base in self.bases]
        return made

    @classmethod
    def options_for(cls, values: Mapping[str, Any]) -> type[CheckedOptions]:
        """The ensemble's options and those of the base that is named."""
        base = _base_type(values.get("base", EnsembleOptions.base)).options_type
        hints = get_type_hints(base)
        return make_dataclass(
            f"EnsembleOf{base.__name__}",
            [
                (item.name, hints[item.name], field(default=item.default, metadata=item.metadata))
                for item in fields(base)
            ],
            bases=(EnsembleOptions,),
            frozen=True,
        )

    @classmethod
    def recipe_names(cls, values: Mapping[str, Any]) -> list[str]:
        """Those of the base, unless there is one for ensembles."""
        base = _base_type(values.get("base", EnsembleOptions.base))
        return [cls.name, *base.recipe_names(values)]

    @classmethod
    def can_shard(cls, values: Mapping[str, Any]) -> bool:
        """If the base can."""
        return _base_type(values.get("base", EnsembleOptions.base)).can_shard(values)

    @classmethod
    def round_epochs(cls, values: Mapping[str, Any], epochs: int) -> tuple[int, ...]:
        """A round for each member, unless they are trained side by side."""
        if values.get("side_by_side"):
            return (epochs,)
        members = int(values.get("members", EnsembleOptions.members))
        later = epochs
        if values.get("start") == "previous":
            share = float(values.get("later_epochs", EnsembleOptions.later_epochs))
            later = max(1, round(share * epochs))
        return (epochs, *[later] * (members - 1))

    @property
    def rounds_go_on(self) -> bool:
        """If each member starts where the one before it ended."""
        return self.options.start == "previous"

    def build(self, module: nn.Module, hints: Hints) -> Members:
        """The base's network around the module, and around copies with new initial weights."""
        modules = [module]
        for base in self.bases[1:]:
            modules.append(copy.deepcopy(module))
            _start_anew(modules[-1], hints, base.streams)
        nets = [base.build(each, hints) for base, each in zip(self.bases, modules, strict=True)]
        return Members(nets, trained=len(nets) if self.options.side_by_side else 1)

    def loss(self, net: Members, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The loss of the member whose turn it is, or of all members.

        Of all, its value is their mean, comparable with the loss of one, but its gradient is that
        of their sum: each member learns as it would alone.
        """
        net.train()
        if not self.options.side_by_side:
            turn = self._one(net)
            loss = self.bases[turn].loss(net.members[turn], objective, kl_scale)
            groups = [len(self._groups(net, number)) for number in range(turn)]
            return loss._replace(group=sum(groups))
        losses = [
            base.loss(member, _for_member(objective, number), kl_scale)
            for number, (base, member) in enumerate(zip(self.bases, net.members, strict=True))
        ]
        count = len(losses)
        summed = cast(Tensor, sum(loss.total for loss in losses))
        kls = [loss.prior_kl for loss in losses if loss.prior_kl is not None]
        states = [loss.state for loss in losses]

        def pull(rate: float) -> None:
            for loss in losses:
                loss.pull(rate)

        return MinibatchLoss(
            summed - (summed - summed / count).detach(),
            None if states[0] is None else {_STATES: states},
            {name: sum(loss.terms[name] for loss in losses) / count for name in losses[0].terms},
            losses[0].gradient_norm,
            sum(loss.seen_kl for loss in losses) / count,
            prior_kl=torch.stack(kls).sum() if kls else None,
            pull=pull,
        )

    def parameter_groups(self, net: Members) -> list[dict[str, Any]]:
        """The base's groups for each member, so that each member is clipped by itself."""
        return [group for number in range(len(self.bases)) for group in self._groups(net, number)]

    def widths(self, net: Members, sequences: int) -> WidthSGD | None:
        """Those of all members."""
        pairs = zip(self.bases, net.members, strict=True)
        made = [base.widths(member, sequences) for base, member in pairs]
        groups = [group for each in made if each is not None for group in each.param_groups]
        return WidthSGD(groups) if groups else None

    def undecayed(self, net: Members) -> list[nn.Parameter]:
        """Those of all members."""
        pairs = zip(self.bases, net.members, strict=True)
        return [parameter for base, member in pairs for parameter in base.undecayed(member)]

    def begin_round(self, net: Members, number: int) -> None:
        """The next member's turn."""
        if self.options.side_by_side:
            return
        if self.rounds_go_on and int(net.trained) == number > 0:  # the first epoch of the round
            net.members[number].load_state_dict(net.members[number - 1].state_dict())
        net.trained.fill_(number + 1)

    def after_step(self, net: Members, step: int, steps: int) -> None:
        """Call the base of each member that was trained."""
        turns = range(len(self.bases)) if self.options.side_by_side else [self._one(net)]
        for number in turns:
            self.bases[number].after_step(net.members[number], step, steps)

    def diagnostics(self, net: Members) -> dict[str, float]:
        """Those of one member."""
        return self.bases[self._one(net)].diagnostics(net.members[self._one(net)])

    def mean_module(self, net: Members) -> nn.Module:
        """The mean of one member: the one whose turn it is or was last; side by side, the first."""
        return self.bases[self._one(net)].mean_module(net.members[self._one(net)])

    def mean(self, net: Members) -> Network:
        """The base's one network, of the member that `mean_module` is of."""
        return self.bases[self._one(net)].mean(net.members[self._one(net)])

    def kept(self, net: Members) -> int:
        """The members trained so far, with the one in training."""
        return int(net.trained)

    @property
    def draws_differ(self) -> bool:
        """As the base's do. (A method that stores several networks cannot be a base.)"""
        return self.bases[0].draws_differ

    def draw(self, net: Members, seed: int) -> Network:
        """A draw of the base, of member seed % members."""
        rest, number = divmod(seed, self.members(net))
        return self.bases[number].draw(net.members[number], rest)

    def drawn_module(self, net: Members, seed: int) -> nn.Module:
        """A draw of the base, of member seed % members."""
        rest, number = divmod(seed, self.members(net))
        return self.bases[number].drawn_module(net.members[number], rest)

    @property
    def draws_can_be_kept(self) -> bool:
        """If the base's can."""
        return self.bases[0].draws_can_be_kept

    @property
    def noise_can_change(self) -> bool:
        """If the base's can."""
        return self.bases[0].noise_can_change

    def set_noise(self, net: Members, factor: float) -> None:
        """Set it for every member."""
        super().set_noise(net, factor)
        for base, member in zip(self.bases, net.members, strict=True):
            base.set_noise(member, factor)

    def state(self) -> Any:
        """The state of each member's base, and its random streams."""
        return [{"streams": base.streams.state(), "base": base.state()} for base in self.bases]

    def restore(self, state: Any) -> None:
        """Continue where `state` was taken."""
        for base, saved in zip(self.bases, state, strict=True):
            base.streams.restore(saved["streams"])
            base.restore(saved["base"])

    def _one(self, net: Members) -> int:
        """The member whose network is used when only one is run."""
        return 0 if self.options.side_by_side else int(net.trained) - 1

    def _groups(self, net: Members, number: int) -> list[dict[str, Any]]:
        return self.bases[number].parameter_groups(net.members[number])


def member_seed(seed: int, number: int) -> int:
    """The root seed of a member: that of the ensemble for member 0, else derived from it.

    The base alone, with this `--seed`, starts from the same weights as the member.
    """
    if number == 0:
        return seed
    mixed = np.random.SeedSequence(seed, spawn_key=(number,)).generate_state(1, np.uint64)
    return int(mixed[0] >> np.uint64(1))  # as many bits as `--seed` takes


def _base_type(name: Any) -> type[Method[Any]]:
    """The method of a base's name."""
    from bayesrnn.methods import METHODS  # late: the registry has this file in it

    # A method's own optimiser is for a whole network, not for one member of several.
    bases = [
        key
        for key, kind in METHODS.items()
        if not (kind.own_optimiser or issubclass(kind, Ensemble))
    ]
    if name not in bases:
        why = ", which cannot be the base of an ensemble" if name in METHODS else ""
        raise ConfigError(f"--base is {name!r}{why}; there are: {', '.join(bases)}")
    return METHODS[name]


def _start_anew(module: nn.Module, hints: Hints, streams: RandomStreams) -> None:
    """Initialise a copy as the task does, or else as its layers do by default."""
    if hints.initialise is not None:
        hints.initialise(module, streams["init"])
        return
    with streams.as_default("init"):
        for layer in module.modules():
            reset = getattr(layer, "reset_parameters", None)
            if callable(reset):
                frozen = [p for p in layer.parameters(recurse=False) if not p.requires_grad]
                before = [parameter.detach().clone() for parameter in frozen]
                reset()
                for parameter, value in zip(frozen, before, strict=True):
                    parameter.data.copy_(value)


def _for_member(objective: Objective, number: int) -> Objective:
    """The objective with the state of one member in place of those of all."""

    def own(argument: Any) -> Any:
        if isinstance(argument, dict) and argument.keys() == {_STATES}:
            return argument[_STATES][number]
        return argument

    def of_member(network: Network) -> Outcome:
        return objective(lambda *args, **kwargs: network(*map(own, args), **kwargs))

    return of_member
