"""A module with tied weights, and the KL divergence of a weight as torch has it."""

from torch import nn
from torch.distributions import Normal, kl_divergence


def gaussian_kl(net, name, sigma):
    loc = net.module.get_parameter(name)
    prior = Normal(loc.new_tensor(0.0), loc.new_tensor(sigma))
    return kl_divergence(Normal(loc, net.sigmas()[name]), prior).sum()


class Tied(nn.Module):
    def __init__(self, words=7, width=4):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.hidden = nn.Linear(width, width)
        self.output = nn.Linear(width, words)
        self.output.weight = self.embedding.weight

    def forward(self, words):
        return self.output(self.hidden(self.embedding(words)).tanh())
