"""What the training loop asks of a task: minibatches, their loss, and metrics."""

from typing import Any, Protocol

from bayesrnn.methods.base import Objective


class Minibatches(Protocol):
    """The minibatches of an epoch, by number, so that training can go on in the middle of one.

    Where they overlap, they also have `passes`: how often an epoch meets each target. Those of a
    task that can be trained in shards have `part(number, sequences)`: some sequences, by a slice,
    of a minibatch.
    """

    @property
    def sequences(self) -> int:
        """How many sequences, or examples, lie side by side in a minibatch."""
        ...

    @property
    def steps(self) -> int:
        """How many units (`LoopSettings.unit`) each sequence of a minibatch counts as."""
        ...

    def __len__(self) -> int: ...

    def length(self, number: int) -> float:
        """How many predictions a minibatch has for each sequence, on average."""
        ...

    def __getitem__(self, number: int) -> Any:
        """A minibatch, as the problem's objective takes it."""
        ...


class Problem(Protocol):
    """What is learnt: the data, the loss and the metrics."""

    def minibatches(self, epoch: int) -> Minibatches:
        """The minibatches of an epoch, counted from 0; every epoch has as many."""
        ...

    def objective(self, batch: Any, state: Any) -> Objective:
        """The loss of a minibatch from a carried state: summed over time, mean over sequences."""
        ...

    def loss_metrics(self, nll: float) -> dict[str, float]:
        """The mean loss of a prediction as metrics, such as the perplexity."""
        ...

    def validate(self) -> dict[str, float]:
        """The metrics on the validation set; on the training set where the name says train_.

        `nll` has to be one of them, the mean negative log-likelihood. It chooses the best epoch,
        unless there is a `fitted_nll`: that at the temperature which fits the validation set best.
        """
        ...
