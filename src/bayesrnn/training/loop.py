"""The training loop: fetch, loss, backward, clip, step, log, save."""

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from bayesrnn.core.widths import WidthSGD
from bayesrnn.errors import CheckpointError, ConfigError, Interrupted, TrainingDivergedError
from bayesrnn.methods.base import Method, MinibatchLoss
from bayesrnn.progress import progress_bar, say
from bayesrnn.random import RandomStreams
from bayesrnn.training.averaging import ParameterAverage, validate
from bayesrnn.training.checkpoints import Checkpoint, CheckpointStore
from bayesrnn.training.distributed import Group
from bayesrnn.training.dropping import Dropping
from bayesrnn.training.kept_files import KeptFiles
from bayesrnn.training.optimisation import (
    clip_gradients,
    clipped_step,
    gradient_norms,
    problem_kl_scale,
    restore_optimiser,
)
from bayesrnn.training.position import Position
from bayesrnn.training.problem import Problem
from bayesrnn.training.process import StopRequest, stop_request
from bayesrnn.training.rounds import Round, round_of
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.training.settings import LoopSettings
from bayesrnn.training.shards import Whole, parts_of

#: Seconds between lines of progress where there is no terminal for a bar.
LINE_SECONDS = 60


class StepMetrics(NamedTuple):
    """The loss to show, the terms of the whole loss, the gradient's norm, the predictions."""

    nll: float
    terms: dict[str, float]
    norm: float
    length: float


class Trainer:
    """Trains `net` with `method` and never loses more than the minutes since the last save.

    A checkpoint holds all that the next step depends on, so a run that was interrupted and resumed
    ends with the same bits as one that was not.
    """

    def __init__(
        self,
        net: nn.Module,
        method: Method[Any],
        problem: Problem,
        optimiser: torch.optim.Optimizer,
        settings: LoopSettings,
        streams: RandomStreams,
        run: RunDirectory,
        fingerprint: str,
        observe: Callable[[dict[str, Any]], None] | None = None,
        widths: WidthSGD | None = None,
        group: Group | None = None,
        after_epoch: Callable[[], None] = lambda: None,
        files: KeptFiles | None = None,
    ) -> None:
        self.net, self.method, self.problem = net, method, problem
        self.optimiser, self.widths = optimiser, widths
        self.settings, self.streams = settings, streams
        self.run, self.store = run, CheckpointStore(run.path)
        self.fingerprint, self.observe, self.after_epoch = fingerprint, observe, after_epoch
        self.files = files or KeptFiles({})
        self.average = ParameterAverage(net, settings.average)
        self.dropping = Dropping(net, method.mean_module(net), settings.drop, self.average)
        #: The epochs of each round.
        self.rounds = method.round_epochs(vars(method.options), settings.epochs)
        self.position = Position()
        self.batches = problem.minibatches(0)
        self.items_per_batch = self.batches.sequences * self.batches.steps
        self.group = group or Group()
        whole = Whole(net, method, problem, settings.precision)
        apart = settings.clip is not None and settings.kl_weighting != "uniform"
        self.parts = parts_of(whole, settings.shards, settings.shard_noise, apart, self.group)
        #: Predictions for each sequence in the minibatches of this epoch that are done.
        self.predictions = 0.0

    def train(self) -> None:
        """Train to the last epoch, from wherever `position` is."""
        position = self.position
        total = self.epochs * len(self.batches) * self.items_per_batch
        done = position.step * self.items_per_batch
        unit = f" {self.settings.unit}s"
        with stop_request() as request, progress_bar(total, unit, "training", done) as bar:
            while position.epoch < self.epochs:
                self.batches = self.problem.minibatches(position.epoch)
                self._begin_round()
                self._train_epoch(request, bar)
                self._finish_epoch()

    @property
    def epochs(self) -> int:
        """The epochs of all rounds."""
        return sum(self.rounds)

    @property
    def round(self) -> Round:
        """The round of this epoch."""
        return round_of(self.position.epoch, self.rounds)

    @property
    def lr(self) -> float:
        """The learning rate of this epoch; a parameter group may have a factor on it."""
        schedule = self.settings.schedule.stretched(self.settings.epochs, self.round.epochs)
        return schedule.at(self.position.epoch - self.round.start)

    def _begin_round(self) -> None:
        """Tell the method which round it is.

        Between two rounds the network goes back to the best epoch of the one that is over.
        """
        position = self.position
        number, start, _ = self.round
        if number and position.epoch == start and not position.minibatch:
            # Not by the pointer: it may be ahead of a state that was saved earlier.
            self.net.load_state_dict(self.store.load_model(str(position.best_step)).model)
            position.best, position.averaged = None, False
            self.average.restart()
        self.method.begin_round(self.net, number)

    def _train_epoch(self, request: StopRequest, bar: Any) -> None:
        position = self.position
        for group in self.optimiser.param_groups:
            group["lr"] = self.lr * group.get("lr_scale", 1.0)
        for group in self.widths.param_groups if self.widths else ():
            # The same course, from a rate of its own.
            group.setdefault("initial_lr", group["lr"])
            group["lr"] = group["initial_lr"] * self.lr / self.settings.schedule.lr
        self.predictions = sum(map(self.batches.length, range(position.minibatch)))
        last_save = last_log = last_line = time.monotonic()
        logged_step = position.step
        while position.minibatch < len(self.batches):
            metrics = self.step()
            bar.update(self.items_per_batch)
            bar.set_postfix_str(self._brief(metrics), refresh=False)
            now = time.monotonic()
            if position.step % self.settings.log_every == 0:
                self._log_step(metrics, position.step - logged_step, now - last_log)
                last_log, logged_step = now, position.step
            if bar.disable and now - last_line > LINE_SECONDS:
                say(f"step {position.step}: {self._brief(metrics)}")
                last_line = now
            is_due = now - last_save > 60 * self.settings.save_minutes
            stopped, due = self.group.largest(request.signal_number or 0, int(is_due))
            if stopped or due:
                self.save()
                last_save = time.monotonic()
            if stopped:
                raise Interrupted(
                    stopped,
                    f"stopped in epoch {position.epoch + 1} after {position.step} steps; "
                    "everything is saved",
                )

    def step(self) -> StepMetrics:
        """One update of the weights: fetch, loss, backward, clip, step."""
        position, batches = self.position, self.batches
        before, steps = self.round.start * len(batches), self.round.epochs * len(batches)
        warmed_since = 0 if self.method.rounds_go_on else before
        kl_scale = problem_kl_scale(
            self.settings.kl_weighting, position.minibatch, batches
        ).warmed_up(position.step - warmed_since, self.settings.kl_warmup * len(batches))
        kl_scale = kl_scale.times(self.dropping.kl_factor)
        loss = self.parts.loss(batches, position.minibatch, position.state, kl_scale)
        norms = self._update(loss)
        if self.widths is not None:
            loss.pull(self.widths.param_groups[0]["lr"])
            self.widths.step()
            self.widths.zero_grad()
        self.optimiser.zero_grad()
        shown, length = loss.terms["nll"] + loss.seen_kl, batches.length(position.minibatch)
        self.predictions += length
        position.state = tree_map_only(Tensor, Tensor.detach, loss.state)  # gradients stop here
        position.epoch_nll += shown
        position.minibatch += 1
        position.step += 1
        self.dropping.after_step(position.step, len(batches))
        self.method.after_step(self.net, position.step - before, steps)
        self.average.update()
        return StepMetrics(shown, loss.terms, norms[loss.group], length)

    def _update(self, loss: MinibatchLoss) -> list[float]:
        """Backward, clip, step; gives the norms before clipping, one for each group.

        Where the first minibatches are charged nearly all of an epoch's KL, its gradient is not
        clipped: an epoch would charge far less of it than it says. The likelihood's still is.
        """
        clip, kl = self.settings.clip, loss.prior_kl
        if clip is None or kl is None or self.settings.kl_weighting == "uniform":
            loss.total.backward()  # type: ignore[no-untyped-call]
            norms = self._norms(loss)
            self._require_finite(loss, norms)
            clipped_step(self.optimiser, clip, norms)
            return norms
        (loss.total - kl).backward(retain_graph=True)  # type: ignore[no-untyped-call]
        norms = self._norms(loss)
        clip_gradients(self.optimiser, clip, norms)
        kl.backward()  # type: ignore[no-untyped-call]
        self.dropping.mask_gradients()
        self._require_finite(loss, [*norms, *gradient_norms(self.optimiser)])
        self.optimiser.step()
        return norms

    def _norms(self, loss: MinibatchLoss) -> list[float]:
        """The norms of the gradients by what is not dropped."""
        known = loss.gradient_norm()
        if self.dropping.share:
            self.dropping.mask_gradients()
            known = None
        return gradient_norms(self.optimiser, known, loss.group)

    def _require_finite(self, loss: MinibatchLoss, norms: list[float]) -> None:
        if all(map(math.isfinite, (loss.total.item(), *norms))):
            return
        worst = next((norm for norm in norms if not math.isfinite(norm)), max(norms))
        raise TrainingDivergedError(
            f"the loss became {loss.total.item():g} and the gradient's norm {worst:g} at step "
            f"{self.position.step + 1} (epoch {self.position.epoch + 1}); nothing of it is saved: "
            "the last checkpoint is from before. Try a lower --lr, a lower --clip, or another "
            "--seed (and, with the method sharpened, a lower --eta-lr), with a new --out"
        )

    def _finish_epoch(self) -> None:
        position, measure = self.position, self.settings.measure
        train = self.problem.loss_metrics(position.epoch_nll / self.predictions)
        validation = validate(self.problem, self.average, position.best_by)
        valid, position.averaged = validation.metrics, validation.averaged
        position.best_by = validation.by
        # More networks to average are better, whatever the metric of a single one; and until as
        # many weights are dropped as are to be, a later epoch is what was asked for more nearly.
        kept, dropped = self.method.kept(self.net), self.dropping.share
        found = valid[validation.by]
        further = kept > position.best_kept or dropped > position.best_dropped
        best = position.best is None or further or found < position.best
        if best:
            position.best, position.best_step = found, position.step
            position.best_kept, position.best_dropped = kept, dropped
        position.epoch += 1
        position.minibatch, position.epoch_nll, position.state = 0, 0.0, None
        self._log(
            "epoch",
            **{f"train_{name}": value for name, value in train.items()},
            **{
                name if name.startswith("train_") else f"valid_{name}": value
                for name, value in valid.items()
            },
            **validation.record(),
            **self.dropping.record(),
            best=best,
        )
        said = [_shown({validation.by: found})] if measure != validation.by else []
        for which, value in validation.shown(measure):
            said.append(_shown({measure: value}) + which)
        say(
            f"epoch {position.epoch}/{self.epochs}  train {_shown(train)}"
            f"  validation {', '.join(said)}{self.dropping.words()}"
            f"{'  (best so far)' if best else ''}"
        )
        self.save(best)
        self.after_epoch()  # what it raises ends training here

    def save(self, best: bool = False) -> None:
        """Write a checkpoint of this moment; its model is the network to predict with."""
        carried, shards = self.parts.saved(self.position.state)
        state = {
            "position": {**asdict(self.position), "state": carried},
            "shards": shards,
            "optimiser": self.optimiser.state_dict(),
            "streams": self.streams.state(),
            "method": self.method.state(),
            "average": self.average.state(),
            "dropping": self.dropping.state(),
            "round_epochs": self.settings.epochs,
            "metrics_size": self.run.metrics.size(),
            "metrics_hash": self.run.metrics.hash(),
            "fingerprint": self.fingerprint,
            "files": self.files.state(),
        }
        if self.group.is_first:
            self.files.restore_missing(self.run)
            # The state refers to the tensors of the average: saved with what they hold inside.
            with self.average.in_place(self.position.averaged):
                self.store.save(Checkpoint(self.position.step, self.net.state_dict(), state), best)
        self.group.wait()

    def resume(self, which: str = "last") -> None:
        """Go back to the moment of a checkpoint."""
        checkpoint = self.store.load(which)
        state = checkpoint.state
        try:
            if state["fingerprint"] != self.fingerprint:
                raise ConfigError(
                    f"the training data is not what {self.run.path} was started with; "
                    "give back the same data, or start a new run with another --out"
                )
            before = state.get("round_epochs", self.settings.epochs)
            if self.method.rounds > 1 and before != self.settings.epochs:
                raise ConfigError(
                    f"--epochs is {self.settings.epochs}, but the run was started with {before} "
                    "for each of its rounds, which come one after the other; leave it out"
                )
            self.net.load_state_dict(checkpoint.model)
            restore_optimiser(self.optimiser, state["optimiser"])
            self.streams.restore(state["streams"])
            self.method.restore(state["method"])
            # Runs of earlier versions chose by their measure, and their `best` is a value of it.
            self.position = Position(**{"best_by": self.settings.measure, **state["position"]})
            self.average.restore(state.get("average"), in_place=self.position.averaged)
            self.dropping.restore(state.get("dropping"))
            carried = self.parts.restored(self.position.state, state.get("shards"))
            device = next(self.net.parameters()).device
            self.position.state = tree_map_only(Tensor, lambda one: one.to(device), carried)
            metrics_size = int(state["metrics_size"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                f"the checkpoint of step {checkpoint.step} in {self.run.path} does not belong to "
                f"this run's configuration: {error}"
            ) from error
        self.run.metrics.truncate(metrics_size)
        if checkpoint.step != self.store.step("last"):
            self.save()  # the last checkpoint has to know the log as it is now

    def _log_step(self, metrics: StepMetrics, steps: int, seconds: float) -> None:
        unit, items = self.settings.unit, steps * self.items_per_batch
        self._log(
            "train",
            **self.problem.loss_metrics(metrics.nll / metrics.length),
            gradient_norm=metrics.norm,
            lr=self.lr,
            **{f"{unit}s_per_second": round(items / max(seconds, 1e-9))},
            **self._per_item(metrics.terms),
            **self.method.diagnostics(self.net),
        )

    def _log(self, kind: str, **metrics: float) -> None:
        # At the end of an epoch the position already points at the next one.
        epoch = self.position.epoch + (kind == "train")
        record = {"kind": kind, "epoch": epoch, "step": self.position.step, **metrics}
        self.run.metrics.append(record)
        if self.observe is not None:
            self.observe(record)

    def _per_item(self, terms: dict[str, float]) -> dict[str, float]:
        """The terms of the loss beside the nll, per prediction."""
        unit, steps = self.settings.unit, self.batches.steps
        return {f"{name}_per_{unit}": terms[name] / steps for name in terms if name != "nll"}

    def _brief(self, metrics: StepMetrics) -> str:
        others = "".join(
            f" {name.replace('_per_', '/').replace('_', ' ')} {value:.2f}"
            for name, value in self._per_item(metrics.terms).items()
        )
        means = _shown(self.problem.loss_metrics(self.position.epoch_nll / self.predictions))
        epoch = f"epoch {self.position.epoch + 1}/{self.epochs}"
        return f"{epoch} {means}{others} gradient {metrics.norm:.1f}"


def _shown(metrics: dict[str, float]) -> str:
    forms = {"error": "8.2%", "rmse": "8.4g", "nll": "8.4f", "fitted_nll": "8.4f"}
    return ", ".join(
        f"{name.replace('_', ' ')} {value:{forms.get(name, '8.2f')}}"
        for name, value in metrics.items()
    )
