"""The training loop: fetch, loss, backward, clip, step, log, save."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from bayesrnn.data import Batch
from bayesrnn.errors import CheckpointError, ConfigError, TrainingDivergedError
from bayesrnn.methods import Method, Objective
from bayesrnn.progress import progress_bar, say
from bayesrnn.random import RandomStreams
from bayesrnn.training.checkpoints import Checkpoint, CheckpointStore
from bayesrnn.training.interrupts import Interrupted, StopWish, stop_wish
from bayesrnn.training.optimisation import Schedule, clip_gradients
from bayesrnn.training.run_directory import RunDirectory


class Minibatches(Protocol):
    """The minibatches of an epoch, by number, so that training can go on in the middle of one."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int) -> Batch: ...


#: Seconds between lines of progress where there is no terminal for a bar.
LINE_SECONDS = 60

#: From a minibatch and the carried state to what runs a network on it.
MakeObjective = Callable[[Batch, Any], Objective]


@dataclass(frozen=True)
class LoopSettings:
    """What the loop itself needs to know."""

    epochs: int
    schedule: Schedule
    clip: float | None
    save_minutes: float
    log_every: int = 50


@dataclass
class Position:
    """Where training is, and the sums behind the figures that it shows."""

    epoch: int = 0
    minibatch: int = 0
    step: int = 0
    state: Any = None
    epoch_nll: float = 0.0
    best: float | None = None


class Trainer:
    """Trains `net` with `method` and never loses more than the minutes since the last save.

    A checkpoint holds all that the next step depends on, so a run that was interrupted and resumed
    ends with the same bits as one that was not.
    """

    def __init__(
        self,
        net: nn.Module,
        method: Method[Any],
        batches: Minibatches,
        make_objective: MakeObjective,
        validate: Callable[[], float],
        optimiser: torch.optim.Optimizer,
        settings: LoopSettings,
        streams: RandomStreams,
        run: RunDirectory,
        fingerprint: str,
        observe: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.net, self.method, self.batches = net, method, batches
        self.make_objective, self.validate = make_objective, validate
        self.optimiser, self.settings, self.streams = optimiser, settings, streams
        self.run, self.store = run, CheckpointStore(run.path)
        self.fingerprint, self.observe = fingerprint, observe
        self.position = Position()
        self.words_per_batch = batches[0].targets.numel()
        self.steps = batches[0].targets.shape[0]
        #: The loss of a minibatch is a sum over time and a mean over its sequences; on that scale
        #: this share charges each weight once per epoch.
        self.kl_share = 1 / (batches[0].targets.shape[1] * len(batches))

    def train(self) -> None:
        """Train to the last epoch, from wherever `position` is."""
        position, settings = self.position, self.settings
        total = settings.epochs * len(self.batches) * self.words_per_batch
        done = position.step * self.words_per_batch
        with stop_wish() as wish, progress_bar(total, " words", "training", done) as bar:
            while position.epoch < settings.epochs:
                self._train_epoch(wish, bar)
                self._finish_epoch()

    def _train_epoch(self, wish: StopWish, bar: Any) -> None:
        position = self.position
        lr = self.settings.schedule.at(position.epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        last_save = last_log = last_line = time.monotonic()
        logged_step = position.step
        while position.minibatch < len(self.batches):
            terms, norm = self.step()
            bar.update(self.words_per_batch)
            bar.set_postfix_str(self._brief(terms, norm), refresh=False)
            now = time.monotonic()
            if position.step % self.settings.log_every == 0:
                words = (position.step - logged_step) * self.words_per_batch
                self._log(
                    "train",
                    perplexity=_perplexity(terms["nll"] / self.steps),
                    gradient_norm=norm,
                    lr=lr,
                    words_per_second=round(words / max(now - last_log, 1e-9)),
                    **self._per_word(terms),
                )
                last_log, logged_step = now, position.step
            if bar.disable and now - last_line > LINE_SECONDS:
                say(f"step {position.step}: {self._brief(terms, norm)}")
                last_line = now
            stopped = wish.signal_number is not None
            if stopped or now - last_save > 60 * self.settings.save_minutes:
                self.save()
                last_save = time.monotonic()
            if wish.signal_number is not None:
                raise Interrupted(
                    wish.signal_number,
                    f"stopped in epoch {position.epoch + 1} after {position.step} steps; "
                    "everything is saved",
                )

    def step(self) -> tuple[dict[str, float], float]:
        """One update of the weights; gives the terms of the loss and the norm of the gradient."""
        position = self.position
        objective = self.make_objective(self.batches[position.minibatch], position.state)
        total, state, terms, known_norm = self.method.loss(self.net, objective, self.kl_share)
        total.backward()  # type: ignore[no-untyped-call]
        norm = clip_gradients(self.net.parameters(), self.settings.clip, known_norm())
        if not (math.isfinite(total.item()) and math.isfinite(norm)):
            raise TrainingDivergedError(
                f"the loss became {total.item():g} and the gradient's norm {norm:g} at step "
                f"{position.step + 1} (epoch {position.epoch + 1}); nothing of it is saved: the "
                "last checkpoint is from before. Try a lower --lr, a lower --clip, or another "
                "--seed, with a new --out"
            )
        self.optimiser.step()
        self.optimiser.zero_grad()
        position.state = _detached(state)
        position.epoch_nll += terms["nll"]
        position.minibatch += 1
        position.step += 1
        return terms, norm

    def _finish_epoch(self) -> None:
        position = self.position
        nll = position.epoch_nll / (len(self.batches) * self.steps)
        valid_nll = self.validate()
        best = position.best is None or valid_nll < position.best
        if best:
            position.best = valid_nll
        position.epoch += 1
        position.minibatch, position.epoch_nll, position.state = 0, 0.0, None
        self._log(
            "epoch",
            train_perplexity=_perplexity(nll),
            valid_perplexity=_perplexity(valid_nll),
            valid_nll=valid_nll,
        )
        say(
            f"epoch {position.epoch}/{self.settings.epochs}  train perplexity "
            f"{_perplexity(nll):8.2f}  validation perplexity {_perplexity(valid_nll):8.2f}"
            f"{'  (best so far)' if best else ''}"
        )
        self.save(best)

    def save(self, best: bool = False) -> None:
        """Write a checkpoint of this moment."""
        state = {
            "position": asdict(self.position),
            "optimiser": self.optimiser.state_dict(),
            "streams": self.streams.state(),
            "method": self.method.state(),
            "metrics_size": self.run.metrics.size(),
            "fingerprint": self.fingerprint,
        }
        self.store.save(Checkpoint(self.position.step, self.net.state_dict(), state), best)

    def resume(self, which: str = "last") -> None:
        """Go back to the moment of a checkpoint."""
        checkpoint = self.store.load(which)
        state = checkpoint.state
        try:
            if state["fingerprint"] != self.fingerprint:
                raise ConfigError(
                    f"the training text is not the one that {self.run.path} was started with; "
                    "give back the same text, or start a new run with another --out"
                )
            self.net.load_state_dict(checkpoint.model)
            self.optimiser.load_state_dict(state["optimiser"])
            self.streams.restore(state["streams"])
            self.method.restore(state["method"])
            self.position = Position(**state["position"])
            self.position.state = _moved(self.position.state, next(self.net.parameters()).device)
            metrics_size = int(state["metrics_size"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"the checkpoint of step {checkpoint.step} in {self.run.path} does not belong to "
                f"this run's configuration: {error}"
            ) from error
        self.run.metrics.truncate(metrics_size)

    def _log(self, kind: str, **figures: float) -> None:
        # At the end of an epoch the position already points at the next one.
        epoch = self.position.epoch + (kind == "train")
        record = {"kind": kind, "epoch": epoch, "step": self.position.step, **figures}
        self.run.metrics.append(record)
        if self.observe is not None:
            self.observe(record)

    def _per_word(self, terms: dict[str, float]) -> dict[str, float]:
        """The terms of the loss beside the nll, spread over the words of an epoch."""
        words = len(self.batches) * self.words_per_batch
        return {f"{name}_per_word": terms[name] / words for name in terms if name != "nll"}

    def _brief(self, terms: dict[str, float], norm: float) -> str:
        others = "".join(
            f" {name.replace('_per_word', '/word')} {value:.2f}"
            for name, value in self._per_word(terms).items()
        )
        done = max(self.position.minibatch, 1)
        perplexity = _perplexity(self.position.epoch_nll / (done * self.steps))
        epoch = f"epoch {self.position.epoch + 1}/{self.settings.epochs}"
        return f"{epoch} perplexity {perplexity:.1f}{others} gradient {norm:.1f}"


def _perplexity(nll: float) -> float:
    """exp(nll), and infinity where that is too large to write down."""
    return math.exp(nll) if nll < 700 else math.inf


def _detached(state: Any) -> Any:
    """The recurrent state without its history: gradients stop at the cut."""
    return tree_map_only(Tensor, Tensor.detach, state)


def _moved(state: Any, device: torch.device) -> Any:
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), state)
