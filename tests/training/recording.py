"""A network, a method and a problem that record what the training loop asks of them."""

from dataclasses import dataclass

import torch
from torch import nn

from bayesrnn.data.batches import Batch
from bayesrnn.methods.base import Method, MinibatchLoss, Outcome
from bayesrnn.options import CheckedOptions

STEPS = 5
LR_SCALE = 0.25
#: The gradient of the second group, of norm 1; that of the first is a minibatch's inputs, and the
#: state carried to it.
SLOPE = (0.6, 0.8)


class Net(nn.Module):
    """A loss that is linear in two parameters, and a state that depends on the first."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.tensor([1.0, -1.0], dtype=torch.double))
        self.second = nn.Parameter(torch.tensor([0.5, 0.5], dtype=torch.double))

    def forward(self, batch, state):
        before = 0.0 if state is None else state["sums"][0]
        nll = self.first @ (batch.inputs + before) + self.second @ batch.targets
        return nll, {"sums": (before + self.first,), "count": 1}


class Recording(Method[CheckedOptions]):
    """The plain loss and a made-up KL; with `noise`, all that a method can have of its own."""

    name, summary, options_type = "recording", "", CheckedOptions

    def __init__(self, streams, noise=0.0):
        super().__init__(CheckedOptions(), streams)
        self.noise, self.shares, self.calls = noise, [], 0
        self.kl, self.seen_kl, self.known_norm, self.group = 0.0, 0.0, None, 0
        #: What else is added to the loss, by the number of the call.
        self.extra = {}

    def build(self, module, hints):
        return module

    def loss(self, net, objective, shares):
        self.shares.append(shares)
        self.calls += 1
        nll, state = objective(net)
        drawn = torch.randn(2, generator=self.streams["noise"], dtype=torch.double)
        total = nll + self.kl + self.noise * self.calls * (drawn @ net.first)
        if self.calls in self.extra:
            total = total + self.extra[self.calls](net)
        terms = {"nll": nll.item(), "kl": self.kl}
        known = self.known_norm
        return MinibatchLoss(total, state, terms, lambda: known, self.seen_kl, self.group)

    def parameter_groups(self, net):
        return [{"params": [net.first]}, {"params": [net.second], "lr_scale": LR_SCALE}]

    def diagnostics(self, net):
        return {"calls": self.calls}

    def draw(self, net, seed):
        raise NotImplementedError

    def state(self):
        return {"calls": self.calls}

    def restore(self, state):
        self.calls = state["calls"]


@dataclass
class Minibatches:
    """Minibatches that can be told apart by their inputs."""

    epoch: int
    count: int
    sequences: int
    steps: int = STEPS

    def __len__(self):
        return self.count

    def length(self, number):
        return STEPS + number

    def __getitem__(self, number):
        inputs = torch.tensor([self.epoch + 1, number + 1], dtype=torch.double)
        return Batch(inputs, torch.tensor(SLOPE, dtype=torch.double))


class Recorder:
    """The problem: notes the epochs, minibatches and states; `nlls` are those of validation."""

    def __init__(self, count=3, sequences=4, nlls=None, fitted_nlls=None):
        self.count, self.sequences, self.nlls = count, sequences, nlls or {}
        self.fitted_nlls = fitted_nlls
        self.epochs, self.used, self.states = [], [], []
        #: What happens before a minibatch, by how many there were before it.
        self.events = {}
        self.seconds = 0.0

    def minibatches(self, epoch):
        self.epochs.append(epoch)
        return Minibatches(epoch, self.count, self.sequences)

    def objective(self, batch, state):
        self.events.get(len(self.used), lambda: None)()
        self.used.append(tuple((batch.inputs - 1).int().tolist()))
        self.states.append(state)
        self.seconds += 2.0
        return lambda network: Outcome(*network(batch, state))

    def loss_metrics(self, nll):
        return {"loss": nll, "square": nll**2}

    def validate(self):
        # The error always falls, so that the best epoch by it is the last one.
        epoch = self.epochs[-1]
        fitted = {} if self.fitted_nlls is None else {"fitted_nll": self.fitted_nlls[epoch]}
        return {"error": float(-epoch), "nll": self.nlls.get(epoch, 1.0), **fitted}
