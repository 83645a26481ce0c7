"""bbb: Bayes by Backprop (Blundell et al. 2015; for recurrent networks, Fortunato et al. 2017)."""

from functools import partial
from typing import ClassVar

from torch import nn

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.methods.base import Drawn, Hints, KLScale, MinibatchLoss, Objective
from bayesrnn.methods.variational import PosteriorOptions, Variational


class BayesByBackprop(Variational[PosteriorOptions]):
    """Minimise the free energy: expected negative log-likelihood plus KL[q || p].

    The weights are drawn once per minibatch and held over all its time steps and sequences.
    """

    name: ClassVar[str] = "bbb"
    summary: ClassVar[str] = "Bayes by Backprop (Fortunato et al. 2017)"
    options_type: ClassVar[type] = PosteriorOptions
    can_share_noise: ClassVar[bool] = True

    def build(self, module: nn.Module, hints: Hints) -> Bayesian:
        """A posterior over the module's weights."""
        return self.make_posterior(module, hints)

    def loss(self, net: Bayesian, objective: Objective, kl_scale: KLScale) -> MinibatchLoss:
        """The free energy of the minibatch, from one draw."""
        weights = self.next_draw(net.train())
        nll, state = objective(Drawn(net, weights))
        kl = weights.kl * (self.options.kl_weight * kl_scale.epoch)
        terms = {"nll": nll.item(), "kl": kl.item()}
        known_norm = partial(self.gradient_norm, net, weights)
        pull = self.pull(net, weights, kl_scale)
        return MinibatchLoss(nll + kl, state, terms, known_norm, prior_kl=kl, pull=pull)
