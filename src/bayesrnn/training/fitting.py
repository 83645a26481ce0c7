"""The loop of `fit`: what is trained, its best epoch so far, and its checkpoints.

A checkpoint has the network to predict with as its model, and all that the next step depends on in
its state, as those of runs have. The order of the batches is not stored: torch's generators as they
were when the epoch began give it once more, and the batches that are done are passed over.
"""

import copy
import math
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from bayesrnn.core.widths import WidthSGD
from bayesrnn.errors import CheckpointError, ConfigError, Interrupted, TrainingDivergedError
from bayesrnn.methods.base import KLScale, Method, Network, Outcome
from bayesrnn.progress import progress_bar, say
from bayesrnn.training.averaging import ParameterAverage
from bayesrnn.training.checkpoints import Checkpoint, CheckpointStore
from bayesrnn.training.given_batches import epoch_predictions, generators_of, predictions
from bayesrnn.training.optimisation import (
    Schedule,
    clipped_step,
    gradient_norms,
    make_optimiser,
    restore_optimiser,
)
from bayesrnn.training.process import StopRequest, stop_request
from bayesrnn.training.run_directory import RunDirectory

#: Mean negative log-likelihood of targets, given the output of the network.
Loss = Callable[[Any, Any], Tensor]

#: Time between checkpoints within an epoch; there is one at the end of each.
_SAVE_SECONDS = 600.0


@dataclass
class Place:
    """Where a training stands, the sums of its epoch, and its best epoch so far.

    round, epoch, minibatch: those to come; the epoch is counted in its round, all from 0.
    first: predictions in the very first minibatch, which optimisers are made for.
    best_epoch: counted from 1 over all rounds; best_kept: the networks that the method had by then.
    """

    round: int = 0
    epoch: int = 0
    minibatch: int = 0
    step: int = 0
    loss: float = 0.0
    predictions: int = 0
    first: int = 0
    best: float = math.inf
    best_epoch: int = 0
    best_step: int = 0
    best_kept: int = 0


@dataclass(frozen=True)
class Settings:
    """What `fit` was asked for."""

    epochs: int
    lr: float
    optimizer: str
    clip: float | None
    average: float
    patience: int | None


class Fitting:
    """The state of a training."""

    def __init__(
        self,
        method: Method[Any],
        net: nn.Module,
        batches: Any,
        valid: Iterable[Any] | None,
        loss: Loss,
        settings: Settings,
    ) -> None:
        self.method, self.net, self.settings = method, net, settings
        self.batches, self.valid, self.loss = batches, valid, loss
        self.rounds = method.round_epochs(vars(method.options), settings.epochs)
        self.schedule = Schedule(settings.lr, max(1, settings.epochs // 2), 0.8)
        if settings.average and not method.can_average:
            raise ConfigError(
                f"the parameters of {method.name} cannot be averaged; leave average out"
            )
        self.average = ParameterAverage(net, settings.average)
        self.optimiser: torch.optim.Optimizer | None = None
        self.widths: WidthSGD | None = None
        self.history: list[dict[str, float]] = []
        self.place = Place()
        self.store: CheckpointStore | None = None
        self._best: dict[str, Tensor] | None = None
        self._generators = generators_of(batches)
        own = set(map(id, self._generators))
        self._valid_generators = [each for each in generators_of(valid) if id(each) not in own]
        self._epoch_start: list[Tensor] = []
        self._predictions = 0

    @contextmanager
    def saved_in(self, path: Path) -> Iterator[None]:
        """Save checkpoints in a folder inside the block, going on from the last one there is."""
        run = RunDirectory(path)
        run.create()
        with run.lock():
            self.store = CheckpointStore(path)
            self.store.clean()
            if self.store.exists():
                self._resume(self.store)
            yield

    def run(self) -> None:
        """All epochs of all rounds, from wherever `place` is."""
        place, per_epoch = self.place, len(self.batches)
        total = sum(self.rounds) * per_epoch
        with (
            _stop_request(self.store is not None) as request,
            progress_bar(total, " minibatches", "training", place.step) as bar,
        ):
            while place.round < len(self.rounds):
                length = self.rounds[place.round]
                if place.epoch == length or (place.epoch and self._is_stuck()):
                    place.round, place.epoch = place.round + 1, 0
                    continue
                self._begin_epoch()
                with self.method.streams.as_default("batches"):
                    self._train_epoch(length, request, bar)
                averaged = self._finish_epoch()
                self._save(averaged, best=place.best_epoch == len(self.history))
                self._honour(request)

    @property
    def where(self) -> str:
        """How far it is."""
        done = len(self.history)
        return f"in epoch {done + 1}" if self.place.minibatch else f"after epoch {done}"

    def load_best(self) -> int:
        """Put the best epoch's parameters in place; gives its number."""
        assert self._best is not None
        self.net.load_state_dict(self._best)
        return self.place.best_epoch

    def _is_stuck(self) -> bool:
        patience = self.settings.patience
        return patience is not None and len(self.history) - self.place.best_epoch >= patience

    def _begin_epoch(self) -> None:
        place = self.place
        if place.round and not (place.epoch or place.minibatch):
            self.load_best()  # the rounds' best epochs are the networks that the method keeps
            # Any epoch of this round is better; until one is over, the last is what is kept.
            place.best, place.best_kept = math.inf, 0
            self.average.restart()
        self.method.begin_round(self.net, place.round)

    def _train_epoch(self, length: int, request: StopRequest, bar: Any) -> None:
        place, steps = self.place, len(self.batches)
        rate = self.schedule.stretched(self.rounds[0], length).at(place.epoch)
        before, done = place.epoch * steps, place.minibatch
        self._epoch_start = [generator.get_state() for generator in self._generators]
        last_save = time.monotonic()
        for number, batch in enumerate(self.batches):
            if number < done:
                continue
            loss, size = self._step(batch, rate)
            self.method.after_step(self.net, before + number + 1, length * steps)
            self.average.update()
            place.loss, place.predictions = place.loss + loss * size, place.predictions + size
            place.minibatch, place.step = number + 1, place.step + 1
            bar.update()
            bar.set_postfix_str(f"loss {place.loss / place.predictions:.4f}", refresh=False)
            if request.signal_number or time.monotonic() - last_save > _SAVE_SECONDS:
                self._save()
                last_save = time.monotonic()
            self._honour(request)

    def _honour(self, request: StopRequest) -> None:
        """Stop if that is asked for; all is saved by then."""
        stopped = request.signal_number
        if stopped == signal.SIGINT:
            raise KeyboardInterrupt
        if stopped is not None:
            raise Interrupted(stopped, f"stopped {self.where}; all is saved")

    def _step(self, batch: Any, rate: float) -> tuple[float, int]:
        size = predictions(batch)
        if self.optimiser is None:
            self._make_optimisers(size)
        assert self.optimiser is not None
        scale = self._scale(size)
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
        clipped_step(self.optimiser, self.settings.clip, norms)
        if self.widths is not None:
            for group in self.widths.param_groups:
                first = group.setdefault("initial_lr", group["lr"])
                group["lr"] = first * rate / self.settings.lr
            loss.pull(self.widths.param_groups[0]["lr"])
            self.widths.step()
            self.widths.zero_grad()
        self.optimiser.zero_grad()
        return loss.terms["nll"], size

    def _scale(self, size: int) -> KLScale:
        """Beside a mean, each minibatch is charged the KL over the predictions of an epoch."""
        return KLScale(epoch=1 / self._predictions, minibatch=1 / size)

    def _make_optimisers(self, size: int) -> None:
        method, net, lr = self.method, self.net, self.settings.lr
        self.place.first = size
        self._predictions = epoch_predictions(self.batches, size)
        if method.own_optimiser:
            self.optimiser = method.optimiser(net, lr, self._scale(size))
        else:
            self.optimiser = make_optimiser(
                self.settings.optimizer,
                method.parameter_groups(net),
                lr,
                0.0,
                method.undecayed(net),
            )
        self.widths = method.widths(net, size)

    def _nll(self, network: Network, batch: Any) -> Outcome:
        device = next(self.net.parameters()).device
        *inputs, target = tree_map_only(Tensor, lambda tensor: tensor.to(device), batch)
        with self.method.streams.as_default("module"):  # for dropout layers that it has itself
            nll = self.loss(network(*inputs), target)
        if not isinstance(nll, Tensor) or nll.numel() != 1:
            shape = f" of shape {list(nll.shape)}" if isinstance(nll, Tensor) else ""
            raise ConfigError(
                f"the loss gives a {type(nll).__name__}{shape}, not one number; it has to be "
                'the mean over the targets, as torch\'s losses give with reduction="mean"'
            )
        return Outcome(nll, None)

    def _finish_epoch(self) -> bool:
        """Validate, and keep the best so far; gives whether the averaged parameters are better."""
        place = self.place
        entry = {"train": place.loss / place.predictions}
        ways = [False, True] if self.average.is_ready else [False]
        if self.valid is None:
            # Nothing says which is better: the last epoch is kept, averaged if that was asked for.
            found, averaged = -math.inf, ways[-1]
        else:
            losses = {}
            for way in ways:
                with self.average.in_place(way):
                    losses[way] = self._validate(self.valid)
            averaged = min(losses, key=lambda way: losses[way])
            entry["valid"] = found = losses[averaged]
        self.history.append(entry)
        place.epoch, place.minibatch = place.epoch + 1, 0
        place.loss, place.predictions = 0.0, 0
        # More networks to average are better, whatever the loss of a single one.
        kept = self.method.kept(self.net)
        if self.valid is None or found < place.best or kept > place.best_kept:
            place.best, place.best_kept = found, kept
            place.best_epoch, place.best_step = len(self.history), place.step
            with self.average.in_place(averaged):
                self._best = copy.deepcopy(self.net.state_dict())
        return averaged

    @torch.no_grad()
    def _validate(self, valid: Iterable[Any]) -> float:
        network, total, count = self.method.mean(self.net), 0.0, 0
        with self.method.streams.as_default("valid"):
            for batch in valid:
                size = predictions(batch)
                total += self._nll(network, batch).nll.item() * size
                count += size
        if not count:
            raise ConfigError(
                "there are no validation batches, or they are gone after one reading: leave valid "
                "out, or give a DataLoader or a list"
            )
        if not math.isfinite(total):
            raise TrainingDivergedError(
                f"the validation loss became {total:g} in epoch {len(self.history) + 1}; try a "
                "lower lr, or look for numbers in the data that are no numbers"
            )
        return total / count

    # Checkpoints

    def _arguments(self) -> dict[str, Any]:
        """What has to be the same where a training goes on."""
        return {
            "method": self.method.name,
            **asdict(self.settings),
            **vars(self.method.options),
            "seed": self.method.streams.seed,
            "minibatches in an epoch": len(self.batches),
            "validation": self.valid is not None,
        }

    def _save(self, averaged: bool = False, best: bool = False) -> None:
        if self.store is None:
            return
        assert self.optimiser is not None
        within = self.place.minibatch > 0
        state = {
            "arguments": self._arguments(),
            "place": asdict(self.place),
            "history": self.history,
            "averaged": averaged,
            "optimiser": self.optimiser.state_dict(),
            "streams": self.method.streams.state(),
            "method": self.method.state(),
            "average": self.average.state(),
            "batches": self._epoch_start if within else [g.get_state() for g in self._generators],
            "valid": [generator.get_state() for generator in self._valid_generators],
        }
        with self.average.in_place(averaged):
            self.store.save(Checkpoint(self.place.step, self.net.state_dict(), state), best)

    def _resume(self, store: CheckpointStore) -> None:
        checkpoint = store.load()
        state, where = checkpoint.state, store.run
        if not isinstance(state, dict) or "arguments" not in state:
            raise ConfigError(f"{where} is a run of the program, not one of fit; give another out")
        now = self._arguments()
        for name, before in state["arguments"].items():
            if now.get(name, before) != before:
                raise ConfigError(
                    f"{where} was begun with {name} {before}, not {now[name]}: give the same "
                    "arguments to go on, or another out to begin anew"
                )
        try:
            place = Place(**state["place"])
            self._make_optimisers(place.first)
            assert self.optimiser is not None
            self.net.load_state_dict(checkpoint.model)
            restore_optimiser(self.optimiser, state["optimiser"])
            self.average.restore(state["average"], in_place=state["averaged"])
            self.method.streams.restore(state["streams"])
            self.method.restore(state["method"])
            for generator, saved in zip(self._generators, state["batches"], strict=True):
                generator.set_state(saved)
            if "valid" in state:  # not in checkpoints of earlier versions
                for generator, saved in zip(self._valid_generators, state["valid"], strict=True):
                    generator.set_state(saved)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"the checkpoint of step {checkpoint.step} in {where} does not belong to this "
                f"module and these batches: {error}"
            ) from error
        self.place, self.history = place, state["history"]
        if place.best_step:
            # Not by the pointer: it may be ahead of a state that was saved earlier.
            self._best = store.load_model(str(place.best_step)).model
        done = place.round == len(self.rounds) - 1 and place.epoch == self.rounds[-1]
        what = "is over" if done else f"goes on in epoch {len(self.history) + 1}"
        say(f"{where}: the training {what}")


@contextmanager
def _stop_request(saved: bool) -> Iterator[StopRequest]:
    """Signals are honoured after the step where it is saved; else they act as they always do."""
    if not saved:
        yield StopRequest()
        return
    with stop_request() as request:
        yield request
