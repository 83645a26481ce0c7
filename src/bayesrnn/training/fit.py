"""fit: train a module of one's own, on batches of one's own, by any method.

It is the loop of the program without what belongs to its runs: folders, checkpoints, tasks.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sized
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.core.widths import WidthSGD
from bayesrnn.errors import ConfigError, TrainingDivergedError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, KLScale, Method, Network, Outcome
from bayesrnn.methods.trained import Trained
from bayesrnn.progress import progress_bar, say
from bayesrnn.random import RandomStreams
from bayesrnn.training.averaging import ParameterAverage
from bayesrnn.training.optimisation import Schedule, clipped_step, gradient_norms, make_optimiser

#: Mean negative log-likelihood of targets, given the output of the network.
Loss = Callable[[Any, Any], Tensor]

#: Widths that learn, under a prior that fits itself and has a step of its own beside Adam's.
#: On a toy of 1,000 sequences (a GRU of 64) a KL weight of 0.1 costs likelihood, 0.3 most of it.
_POSTERIOR = {"prior": "fitted", "sigma_lr": 1.0, "prior_step": "natural", "kl_weight": 0.03}
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "bbb": _POSTERIOR,
    "sharpened": _POSTERIOR,
    "sgld": {"temperature": 1e-3},
    "psgld": {"temperature": 1e-3},
    "ivon": {"prior_sigma": 0.5, "hess_init": 0.1, "beta2": 0.9995},
}
#: Learning rates of methods that do not leave the update to Adam.
_RATES = {"sgld": 0.3, "ivon": 0.3}


@dataclass(frozen=True)
class Fit(Trained):
    """A trained network, and how it got there.

    history: an entry for each epoch: its mean training loss, with draws, as `train`, and that of
        validation batches with the mean network as `valid`, where there are any.
    best_epoch: the epoch, from 1, whose parameters these are.
    """

    history: tuple[Mapping[str, float], ...]
    best_epoch: int


def fit(
    module: nn.Module,
    batches: Iterable[Any],
    loss: Loss,
    *,
    method: str = "bbb",
    epochs: int = 20,
    valid: Iterable[Any] | None = None,
    patience: int | None = None,
    lr: float | None = None,
    optimizer: str = "adam",
    clip: float | None = 5.0,
    average: float = 0.0,
    seed: int = 1,
    **options: Any,
) -> Fit:
    """Train `module` by a method, and return what predicts: give it to `predict`.

        trained = br.fit(nn.GRU(...), loader, F.cross_entropy, method="bbb", valid=others)
        br.predict(trained, x, samples=20)

    The module itself is trained; a copy keeps what it was. The learning rate is constant for the
    first half of the epochs, then times 0.8 in each.

    batches: an epoch's, as often as it is iterated, such as a `DataLoader`; each is (inputs ...,
        target), and the module is called with the inputs. It has to have a length.
    loss: the mean negative log-likelihood of the targets, of loss(output, target), such as
        `F.cross_entropy`. How many predictions that is the mean of is taken from the number of
        elements of the target.
    method: any of the program's: plain, dropout, variational-dropout, bbb, sharpened, ensemble ...
    valid: batches to validate on after each epoch; the best epoch's parameters are kept.
    patience: stop after so many epochs without a better one.
    lr, optimizer: an optimiser of torch by name; methods with one of their own have other rates.
    clip: the largest norm of the gradient; None for no limit.
    average: decay per step of averaged parameters, such as 0.998; kept where they validate better.
    options: those of the method: dropout=0.3, kl_weight=0.5, members=5 ...
    """
    if isinstance(module, Bayesian):
        raise ConfigError(
            "fit takes the ordinary module, and wraps it as the method says; give net.module"
        )
    if not isinstance(batches, Sized) or not len(batches):
        raise ConfigError(
            "the batches have no length, so that it is not known what share of the KL each is to "
            "be charged; give a DataLoader or a list of at least one batch"
        )
    if patience is not None and valid is None:
        raise ConfigError("patience needs validation batches: give valid=")
    if epochs < 1:
        raise ConfigError(f"epochs is {epochs}; it has to be 1 or more")
    made = _make(method, options, seed)
    rate = lr if lr is not None else _RATES.get(method, 1e-3)
    fitting = _Fitting(made, module, batches, loss, epochs, rate, optimizer, clip, average)
    try:
        fitting.run(valid, patience)
    except KeyboardInterrupt:
        if not fitting.history:
            raise
        say(f"stopped in epoch {len(fitting.history) + 1}; the best epoch so far is kept")
    return fitting.best()


def _make(method: str, options: Mapping[str, Any], seed: int) -> Method[Any]:
    if method not in METHODS:
        raise ConfigError(f"method is {method!r}; there are: {', '.join(METHODS)}")
    values = {**_OPTIONS.get(method, {}), **options}
    made = METHODS[method]
    known = made.options_for(values)
    unknown = sorted(set(values) - set(known.__dataclass_fields__))
    if unknown:
        raise ConfigError(
            f"the method {method} has no option {', '.join(unknown)}; it has: "
            f"{', '.join(known.__dataclass_fields__) or 'none'}"
        )
    return made(known(**values), RandomStreams(seed))


class _Fitting:
    """The state of a training: what is trained, and its best epoch so far."""

    def __init__(
        self,
        method: Method[Any],
        module: nn.Module,
        batches: Any,
        loss: Loss,
        epochs: int,
        lr: float,
        optimizer: str,
        clip: float | None,
        average: float,
    ) -> None:
        self.method, self.batches, self.loss, self.clip = method, batches, loss, clip
        # Narrow: widths that learn grow where they may, and too wide a start hides the data.
        self.net = method.build(module, Hints(sigma_init={"*": absolute(0.02)}))
        self.rounds = method.round_epochs(vars(method.options), epochs)
        self.schedule = Schedule(lr, max(1, epochs // 2), 0.8)
        self.optimizer, self.lr = optimizer, lr
        if average and not method.can_average:
            raise ConfigError(
                f"the parameters of {method.name} cannot be averaged; leave average out"
            )
        self.average = ParameterAverage(self.net, average)
        self.optimiser: torch.optim.Optimizer | None = None
        self.widths: WidthSGD | None = None
        self.history: list[dict[str, float]] = []
        self._best: tuple[float, int, dict[str, Tensor]] | None = None

    def run(self, valid: Iterable[Any] | None, patience: int | None) -> None:
        """All epochs of all rounds."""
        epochs, steps = sum(self.rounds), len(self.batches)
        with progress_bar(epochs * steps, " minibatches", "training") as bar:
            for number, length in enumerate(self.rounds):
                if number:  # the rounds' best epochs are the networks that the method keeps
                    self._load_best()
                    assert self._best is not None
                    # Any epoch of this round is better; until one is over, this is what is kept.
                    self._best = (math.inf, *self._best[1:])
                    self.average.restart()
                for epoch in range(length):
                    self.method.begin_round(self.net, number)
                    rate = self.schedule.stretched(self.rounds[0], length).at(epoch)
                    train = self._epoch(rate, epoch * steps, length * steps, bar)
                    self._finish_epoch(train, valid)
                    assert self._best is not None
                    if patience is not None and len(self.history) - self._best[1] >= patience:
                        break

    def best(self) -> Fit:
        """What was found."""
        self._load_best()
        assert self._best is not None
        self.net.eval()
        return Fit(self.net, self.method, tuple(self.history), self._best[1])

    def _load_best(self) -> None:
        assert self._best is not None
        self.net.load_state_dict(self._best[2])

    def _epoch(self, rate: float, before: int, steps: int, bar: Any) -> float:
        total, predictions = 0.0, 0
        for number, batch in enumerate(self.batches):
            loss, size = self._step(batch, rate)
            self.method.after_step(self.net, before + number + 1, steps)
            self.average.update()
            total, predictions = total + loss * size, predictions + size
            bar.update()
            bar.set_postfix_str(f"loss {total / predictions:.4f}", refresh=False)
        return total / predictions

    def _step(self, batch: Any, rate: float) -> tuple[float, int]:
        size = _predictions(batch)
        scale = KLScale(epoch=1 / (size * len(self.batches)), minibatch=1 / size)
        if self.optimiser is None:
            self._make_optimisers(scale, size)
        assert self.optimiser is not None
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        loss = self.method.loss(self.net, lambda network: self._nll(network, batch), scale)
        loss.total.backward()  # type: ignore[no-untyped-call]
        norms = gradient_norms(self.optimiser, loss.gradient_norm(), loss.group)
        if not all(map(math.isfinite, (loss.total.item(), *norms))):
            raise TrainingDivergedError(
                f"the loss became {loss.total.item():g} and the gradient's norm {max(norms):g} in "
                f"epoch {len(self.history) + 1}; try a lower lr or clip, or look for numbers in "
                "the data that are no numbers"
            )
        clipped_step(self.optimiser, self.clip, norms)
        if self.widths is not None:
            for group in self.widths.param_groups:
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * rate / self.lr
            loss.pull(self.widths.param_groups[0]["lr"])
            self.widths.step()
            self.widths.zero_grad()
        self.optimiser.zero_grad()
        return loss.terms["nll"], size

    def _make_optimisers(self, scale: KLScale, size: int) -> None:
        method, net = self.method, self.net
        if method.own_optimiser:
            self.optimiser = method.optimiser(net, self.lr, scale)
        else:
            self.optimiser = make_optimiser(
                self.optimizer, method.parameter_groups(net), self.lr, 0.0, method.undecayed(net)
            )
        self.widths = method.widths(net, size)

    def _nll(self, network: Network, batch: Any) -> Outcome:
        device = next(self.net.parameters()).device
        *inputs, target = tree_map_only(Tensor, lambda tensor: tensor.to(device), batch)
        with self.method.streams.as_default("module"):  # for dropout layers that it has itself
            output = network(*inputs)
        return Outcome(self.loss(output, target), None)

    def _finish_epoch(self, train: float, valid: Iterable[Any] | None) -> None:
        """Validate the current and the averaged parameters, and keep the best so far."""
        entry, epoch = {"train": train}, len(self.history) + 1
        ways = [False, True] if self.average.is_ready else [False]
        if valid is None:
            # Nothing says which is better: the last epoch is kept, averaged if that was asked for.
            self._keep(-epoch, epoch, ways[-1])
        else:
            found = {}
            for averaged in ways:
                with self.average.in_place(averaged):
                    found[averaged] = self._validate(valid)
            averaged = min(found, key=lambda way: found[way])
            entry["valid"] = found[averaged]
            if self._best is None or found[averaged] < self._best[0]:
                self._keep(found[averaged], epoch, averaged)
        self.history.append(entry)

    def _keep(self, loss: float, epoch: int, averaged: bool) -> None:
        with self.average.in_place(averaged):
            self._best = (loss, epoch, copy.deepcopy(self.net.state_dict()))

    @torch.no_grad()
    def _validate(self, valid: Iterable[Any]) -> float:
        network, total, predictions = self.method.mean(self.net), 0.0, 0
        for batch in valid:
            size = _predictions(batch)
            total += self._nll(network, batch).nll.item() * size
            predictions += size
        if not predictions:
            raise ConfigError(
                "there are no validation batches, or they are gone after one reading: leave valid "
                "out, or give a DataLoader or a list"
            )
        if not math.isfinite(total):
            raise TrainingDivergedError(
                f"the validation loss became {total:g} in epoch {len(self.history) + 1}; try a "
                "lower lr, or look for numbers in the data that are no numbers"
            )
        return total / predictions


def _predictions(batch: Any) -> int:
    """How many predictions a batch asks for: the elements of its target."""
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise ConfigError(
            f"a batch is a {type(batch).__name__}; it has to be a tuple of inputs and, last, the "
            "target, such as a DataLoader of a TensorDataset gives"
        )
    targets = [leaf for leaf in tree_leaves(batch[-1]) if isinstance(leaf, Tensor)]
    if not targets or not targets[0].numel():
        raise ConfigError("the last part of a batch is its target; it has to hold a tensor")
    return targets[0].numel()
