"""fit: train a module of one's own, on batches of one's own, by any method.

It is the loop of the program without what belongs to its runs: configurations, metrics, tasks.
"""

import math
from collections.abc import Iterable, Mapping, Sized
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.init import absolute
from bayesrnn.errors import ConfigError
from bayesrnn.methods import METHODS
from bayesrnn.methods.base import Hints, Method
from bayesrnn.methods.trained import Trained
from bayesrnn.progress import say
from bayesrnn.random import RandomStreams
from bayesrnn.training.fitting import Fitting, Loss, Settings

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
    out: str | Path | None = None,
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
    seed: decides all random numbers: of the method, of the module, of a `DataLoader` that has no
        generator of its own.
    out: a folder for checkpoints, one at the end of each epoch and every ten minutes. Called again
        with the same arguments, `fit` goes on from the last one, after Ctrl-C or a kill, and ends
        with the same bits as if nothing had happened (on the CPU, with as many threads, where
        batches take their random numbers from torch).
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
    rate = lr if lr is not None else _RATES.get(method, 1e-3)
    settings = Settings(epochs, rate, optimizer, clip, average, patience)
    _require_possible(settings, seed)
    made = _make(method, options, seed)
    # Narrow: widths that learn grow where they may, and too wide a start hides the data.
    net = made.build(module, Hints(sigma_init={"*": absolute(0.02)}))
    fitting = Fitting(made, net, batches, valid, loss, settings)
    with nullcontext() if out is None else fitting.saved_in(Path(out)):
        try:
            fitting.run()
        except KeyboardInterrupt:
            if not fitting.history:
                raise
            later = "" if out is None else "; call fit again to go on"
            say(f"stopped {fitting.where}; the best so far is kept{later}")
    best = fitting.load_best()
    net.eval()
    return Fit(net, made, tuple(fitting.history), best)


def _require_possible(given: Settings, seed: int) -> None:
    checks = (
        ("epochs", given.epochs, given.epochs >= 1, "1 or more"),
        ("lr", given.lr, 0 < given.lr < math.inf, "above 0"),
        ("clip", given.clip, given.clip is None or given.clip > 0, "above 0, or None"),
        ("average", given.average, 0 <= given.average < 1, "0 or more, and below 1"),
        ("patience", given.patience, given.patience is None or given.patience >= 1, "1 or more"),
        ("seed", seed, seed >= 0, "0 or more"),
    )
    for name, value, is_possible, allowed in checks:
        if not is_possible:
            raise ConfigError(f"{name} is {value}; it has to be {allowed}")


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
