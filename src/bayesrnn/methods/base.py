"""What all methods to train a network have in common.

A method turns an ordinary module into what is trained, gives the loss of a minibatch, and gives
networks to predict with. The training loop, checkpoints, evaluation and the command line know a
method only through this protocol.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import Self, TypeVar

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import Scale, relative
from bayesrnn.core.weights import Weights
from bayesrnn.core.widths import WidthSGD
from bayesrnn.errors import ConfigError
from bayesrnn.nn.recurrent import WordNetwork
from bayesrnn.options import CheckedOptions, options_of
from bayesrnn.random import RandomStreams

#: Anything that is called like the module that a task made.
Network = Callable[..., Any]


class Outcome(NamedTuple):
    """The loss of a network on a minibatch, and the recurrent state after it."""

    nll: Tensor
    state: Any


@dataclass(frozen=True)
class Drawn:
    """A network with weights drawn for a minibatch, called like the module that a task made."""

    net: Bayesian
    weights: Weights

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the network with these weights."""
        return self.net(*args, weights=self.weights, **kwargs)

    def with_values(self, values: Sequence[Tensor]) -> "Drawn":
        """The same network with other weights, in the same order."""
        return Drawn(self.net, Weights(dict(zip(self.weights, values, strict=True))))


#: Runs a network on one minibatch. Calling it twice starts from the same state twice.
Objective = Callable[[Network], Outcome]


class KLScale(NamedTuple):
    """Factors that put KL divergences on the scale of a minibatch's loss.

    epoch: of the divergence between posterior and prior, which an epoch charges once in all.
    minibatch: of a divergence that belongs to the minibatch alone. The objective's loss divided by
        this is the summed loss.
    """

    epoch: float
    minibatch: float

    def warmed_up(self, step: int, steps: float) -> "KLScale":
        """The same with less of the first: over `steps` it rises with the third power of time.

        At the start that is next to nothing, as it has to be: an optimiser that divides gradients
        by their size, as Adam does, takes whole steps along the prior's where there is no other.
        """
        share = min(1.0, (step + 1) / steps) if steps else 1.0
        return self.times(share**3)

    def times(self, factor: float) -> "KLScale":
        """The same with `factor` times the first."""
        return self._replace(epoch=self.epoch * factor)


class MinibatchLoss(NamedTuple):
    """The loss to minimise, the state after the minibatch, and the named terms of the loss.

    seen_kl: the KL, in full and on the scale of the nll, of a network that has seen the targets: no
        likelihood is to be shown without it.
    gradient_norm: called after the backward pass, gives the gradient norm of the parameter group
        `group` where the method knows it without another pass over all gradients, else None.
    group: the number of the parameter group whose gradient's norm is logged.
    prior_kl: the term of the total that belongs to the epoch, if there is one.
    pull: called after the step with the rate of the widths, moves the means towards the prior where
        the gradient of the total leaves that out.
    """

    total: Tensor
    state: Any
    terms: dict[str, float]
    gradient_norm: Callable[[], float | None] = lambda: None
    seen_kl: float = 0.0
    group: int = 0
    prior_kl: Tensor | None = None
    pull: Callable[[float], None] = lambda rate: None


class Bound(NamedTuple):
    """An upper bound on the summed loss of a minibatch, nll + kl in nats; the state after it.

    drawn: the part of the nll that depends on the draw of the weights; 0 if it is exact.
    """

    nll: float
    kl: float
    state: Any
    drawn: float = 0.0


@dataclass(frozen=True)
class Hints:
    """What a task tells a method about its network."""

    deterministic: tuple[str, ...] = ()
    sigma_init: Mapping[str, Scale] = field(default_factory=dict)
    #: Initialises a copy of the network.
    initialise: Callable[[nn.Module, torch.Generator], None] | None = None
    #: Names of dropout layers whose output goes straight into a recurrent layer.
    before_recurrent: tuple[str, ...] = ()
    #: Names of layers whose input comes from a dropout layer, where no `nn.Sequential` shows it.
    after_dropout: tuple[str, ...] = ()
    #: The name of a linear layer whose outputs are all scored, through a softmax and by a summed
    #: likelihood, if there is one: its curvature has a closed form.
    softmax_layer: str | None = None


_NORMALISING = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase)


def not_weights(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that have no prior around 0.

    They are single numbers, and what scales or shifts a normalised input.
    """
    return [
        parameter
        for layer in module.modules()
        for parameter in layer.parameters(recurse=False)
        if isinstance(layer, _NORMALISING) or not parameter.dim()
    ]


Options = TypeVar("Options", bound=CheckedOptions)
#: The network that a method builds, and is given from then on.
Net = TypeVar("Net", bound=nn.Module, default=Any)


class Method(ABC, Generic[Options, Net]):
    """A method to train a network. A subclass is one file and one line in the registry."""

    #: The name on the command line, and one line that says what it is.
    name: ClassVar[str]
    summary: ClassVar[str]
    #: A frozen dataclass of `option` fields: the method's options on the command line.
    options_type: ClassVar[type[CheckedOptions]]
    #: The method whose recipes suit this one where a task has none for it.
    trains_like: ClassVar[str | None] = None
    #: What the single network of `mean` is called.
    mean_label: ClassVar[str] = "mean weights"
    #: Whether that network stands for all that are kept, and is not one of them.
    has_mean: ClassVar[bool] = True
    #: Whether the update of the weights is part of the method: `optimiser` then makes the
    #: optimiser, and the user cannot choose another.
    own_optimiser: ClassVar[bool] = False
    #: Whether the mean of the parameters over many steps is a network to predict with. It is not
    #: where single steps are samples, or where the optimiser holds a part of what is learnt.
    can_average: ClassVar[bool] = True
    #: Whether weights can be dropped while it trains: there is one network, whose parameters are
    #: all that is learnt.
    can_drop: ClassVar[bool] = True
    #: Whether all shards of a minibatch can have the same draw: it is one of weights (`Drawn`), or
    #: there is none.
    can_share_noise: ClassVar[bool] = False

    #: The factor on the noise of `draw`, see `set_noise`.
    noise_factor: float = 1.0

    def __init__(self, options: Options, streams: RandomStreams) -> None:
        self.options = options
        self.streams = streams

    @classmethod
    def options_for(cls, values: Mapping[str, Any]) -> type[CheckedOptions]:
        """The options dataclass, where it depends on the options given."""
        del values
        return cls.options_type

    @classmethod
    def recipe_names(cls, values: Mapping[str, Any]) -> list[str]:
        """The methods whose recipes suit this one, given its options; the best first."""
        del values
        return [cls.name, *([cls.trains_like] if cls.trains_like else [])]

    @classmethod
    def can_shard(cls, values: Mapping[str, Any]) -> bool:
        """Whether a minibatch can be cut into shards, given its options.

        It cannot where `loss` changes the network, which each process would do in a way of its own.
        """
        del values
        return True

    @classmethod
    def words(cls, values: Mapping[str, Any]) -> list[str]:
        """The options of a run as tables show them; those that few runs change come last."""
        stated = options_of(cls.options_for(values))
        ordered = sorted(stated, key=lambda item: not item.shown_default)
        return [said for item in ordered if (said := item.words(values))]

    @classmethod
    def round_epochs(cls, values: Mapping[str, Any], epochs: int) -> tuple[int, ...]:
        """The epochs of each training round, given the options and those of the first."""
        del values
        return (epochs,)

    def of_shard(self, number: int) -> Self:
        """The same method, after `build`, with randomness of its own for a shard of minibatches.

        Shard 0 has that of the method itself.
        """
        if number == 0:
            return self
        made = copy.copy(self)
        made.streams = self.streams.of_shard(number)
        return made

    @abstractmethod
    def build(self, module: nn.Module, hints: Hints) -> nn.Module:
        """What is trained, around `module`: a `Net`."""

    @abstractmethod
    def loss(self, net: Net, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The loss of one minibatch."""

    def parameter_groups(self, net: Net) -> list[dict[str, Any]]:
        """The parameters for the optimiser; each group is clipped by itself.

        A group may have an `lr_scale`, a factor on the learning rate.
        """
        return [{"params": list(net.parameters())}]

    def widths(self, net: Net, sequences: int) -> WidthSGD | None:
        """The optimiser of widths that have a rate of their own, if there are any.

        They are in no group of `parameter_groups`. The loss is a mean over `sequences`.
        """
        del net, sequences
        return None

    def undecayed(self, net: Net) -> list[nn.Parameter]:
        """The parameters that no weight decay may pull towards 0."""
        return not_weights(net)

    def optimiser(self, net: Net, lr: float, kl_scale: KLScale) -> torch.optim.Optimizer:
        """The method's own optimiser, made before the first `loss`.

        `kl_scale` is that of any minibatch.
        """
        raise NotImplementedError(f"the method {self.name} has no optimiser of its own")

    @property
    def rounds(self) -> int:
        """Number of training rounds."""
        return len(self.round_epochs(vars(self.options), 1))

    @property
    def rounds_go_on(self) -> bool:
        """Whether a round starts with what the one before it has learnt."""
        return False

    def begin_round(self, net: Net, number: int) -> None:
        """Called before each epoch of a round; rounds are counted from 0."""

    def after_step(self, net: Net, step: int, steps: int) -> None:
        """Called after an update: the `step`-th, from 1, of the `steps` of a round."""

    def diagnostics(self, net: Net) -> dict[str, float]:
        """Further metrics for the log, too expensive to compute at every step."""
        del net
        return {}

    def mean_module(self, net: Net) -> nn.Module:
        """The ordinary module inside `net`, with the mean weights or those of a single network."""
        return net

    def mean(self, net: Net) -> Network:
        """The network to predict with when only one is run."""
        module = self.mean_module(net)

        def network(*args: Any, **kwargs: Any) -> Any:
            return module.eval()(*args, **kwargs)

        return network

    def kept(self, net: Net) -> int:
        """How many networks are stored to predict with; 0: only the one that is trained."""
        del net
        return 0

    def members(self, net: Net) -> int:
        """How many networks there are to draw; a draw is of number `seed % members`."""
        return max(1, self.kept(net))

    @property
    def draws_differ(self) -> bool:
        """Whether two draws of the same member are two different networks."""
        return True

    @abstractmethod
    def draw(self, net: Net, seed: int) -> Network:
        """The network of a seed, drawn from the distribution of the weights."""

    def drawn_module(self, net: Net, seed: int) -> nn.Module:
        """The network of `draw` as a module of its own, where a draw is one of weights."""
        if self.draws_differ:
            raise ConfigError(
                f"a draw of {self.name} drops something at each call, so that it is no module with "
                "weights of its own; take the mean"
            )
        return copy.deepcopy(self.mean_module(net))

    @property
    def draws_can_be_kept(self) -> bool:
        """Whether a network of `draw` gives the same for the same inputs whenever it is called."""
        return False

    @property
    def noise_can_change(self) -> bool:
        """Whether draws have a noise that `set_noise` makes larger or smaller."""
        return False

    def set_noise(self, net: Net, factor: float) -> None:
        """Draw with `factor` times the noise from now on: of sigma, or of a dropout rate.

        This is for prediction: `draw` alone knows it, training never does.
        """
        del net
        if factor != 1 and not self.noise_can_change:
            raise ConfigError(f"the draws of {self.name} have no noise that a factor could change")
        self.noise_factor = factor

    def state(self) -> Any:
        """What has to be saved to continue after an interruption, beside `streams`."""
        return None

    def restore(self, state: Any) -> None:
        """Continue where `state` was taken."""
        del state


class Bounded(ABC, Generic[Net]):
    """A method that bounds a likelihood by networks that have seen the targets.

    Only the sum, nll + kl, is a bound; the nll alone is not.
    """

    @abstractmethod
    def bound(self, net: Net, objective: Objective, generator: torch.Generator) -> Bound:
        """The bound on a minibatch, whose objective has to be the summed loss."""


#: The weights of a `WordNetwork` that have no posterior.
DETERMINISTIC = ("output.bias",)


def build_word_network(
    method: Method[Any],
    network: WordNetwork,
    uniform: float,
    generator: torch.Generator,
    deterministic: tuple[str, ...] = DETERMINISTIC,
    softmax_layer: str | None = None,
) -> nn.Module:
    """Initialise a network that reads words, and make of it what a method trains.

    The layers that meet words start with larger sigmas. `uniform` 0 initialises by fan-in.
    """

    def initialise(made: nn.Module, generator: torch.Generator) -> None:
        assert isinstance(made, WordNetwork)
        made.initialise(uniform or None, generator)

    initialise(network, generator)
    hints = Hints(
        deterministic=deterministic,
        sigma_init={"recurrent.*": relative(0.25, 0.5), "*": relative(0.5, 1.0)},
        initialise=initialise,
        before_recurrent=("input_dropout",),
        after_dropout=("output",),
        softmax_layer=softmax_layer,
    )
    return method.build(network, hints)
