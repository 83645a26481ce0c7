"""Bayesian: a distribution over the weights of any nn.Module."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesrnn.core.assignment import assign
from bayesrnn.core.functional import run_with
from bayesrnn.core.init import Scale
from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.core.kernel.reference import inverse_softplus, softplus
from bayesrnn.core.names import aliases_of, drop_aliases, place, restore_aliases
from bayesrnn.core.noise import Noise, draw_seed, normal_noise
from bayesrnn.core.objective import warn_without_kl
from bayesrnn.core.posterior import DROPPED_RHO, Factor, PriorTerm, draw, factors, require_pull
from bayesrnn.core.priors import Prior
from bayesrnn.core.saving import Settings, save
from bayesrnn.core.sharpening import Sharpening, sharpen, sharpen_shrinking
from bayesrnn.core.shrinking import Shrinking, shrinking_of
from bayesrnn.core.weights import Weights
from bayesrnn.errors import ConfigError


class Bayesian(nn.Module):
    """A mean-field Gaussian posterior over the weights of `module`.

    The module is used as it is. Its own parameters become the posterior's means, so it starts from
    its own initialisation, and after training it is the mean network. Beside each mean lies rho,
    with the standard deviation sigma = softplus(rho) + min_sigma.

        weights = net.sample()                    # one draw, held over a whole sequence
        output = net(x, weights=weights)
        loss = nll(output, y) + weights.kl / number_of_minibatches

    In training mode `net(x)` draws by itself, and `net.kl()` is then what to charge; in evaluation
    mode it uses the mean.

    Names of parameters may be given as patterns ("encoder.*"); the first pattern that fits decides.

    prior: one prior for all weights, or a mapping from name pattern to prior.
    sigma_init: the initial standard deviation: a number, `absolute(low, high)`,
        `relative(low, high)` to the prior's, or a mapping from name pattern to one of these.
    deterministic: names of parameters that stay ordinary. Frozen ones (requires_grad=False) do so
        anyway, and so does the row `padding_idx` of an embedding, which learns nothing: it is
        never drawn nor charged (unless its matrix is tied to another layer's, which uses the row).
    generator: the source of randomness for the initial standard deviations.
    sharpening: True, or a `Sharpening`, for a network whose draws can be sharpened: beside each
        mean then also lies eta, or what the shrinking form learns, and `sharpen` can be called.
    """

    def __init__(
        self,
        module: nn.Module,
        prior: Prior | Mapping[str, Prior] | None = None,
        sigma_init: float | Scale | Mapping[str, float | Scale] | None = None,
        deterministic: Sequence[str] = (),
        min_sigma: float = 1e-5,
        generator: torch.Generator | None = None,
        sharpening: Sharpening | bool | None = None,
    ) -> None:
        super().__init__()
        if any(isinstance(layer, Bayesian) for layer in module.modules()):
            raise ConfigError(
                f"this {type(module).__name__} is, or has in it, a bayesrnn.Bayesian already; wrap "
                "the ordinary network once, as a whole"
            )
        # The means are the module's own parameters, so this one attribute also gives them their
        # place in state_dict: loc.<name>, next to rho.<name>.
        self.loc = module
        self.rho = nn.Module()
        self.min_sigma = min_sigma
        self.sharpening = Sharpening.given(sharpening)
        self._kl_asked = False
        self._aliases = aliases_of(module)
        self._terms: dict[str, PriorTerm] = {}
        self._padding: dict[str, int] = {}
        assigned = assign(
            module, self._aliases, prior, sigma_init, deterministic, min_sigma, generator
        )
        for name, (term, sigma, padding) in assigned.items():
            self._terms[name] = term
            if padding is not None:
                self._padding[name] = padding
            place(self.rho, name, nn.Parameter(inverse_softplus(sigma - min_sigma)))
        self.shrinking: Shrinking | None = None
        if self.sharpening is not None and self.sharpening.form == "shrinking":
            self.shrinking = shrinking_of(
                module,
                self._aliases,
                self.sharpening.names,
                self.sharpening.sigma0,
                self.sharpening.momentum,
            )
        elif self.sharpening is not None:
            self.eta = nn.Module()
            for name in self._terms:
                eta = torch.full_like(module.get_parameter(name), self.sharpening.first_eta)
                place(self.eta, name, nn.Parameter(eta))
        kernel_for(
            self._parameters_of(self.loc)
        )  # loads the compiled loops, which torch.compile cannot do
        self.register_state_dict_post_hook(drop_aliases)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(restore_aliases)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(lambda net, _: net._count_dropped())  # type: ignore[no-untyped-call]

    @property
    def module(self) -> nn.Module:
        """The wrapped module; its parameters are the posterior's means."""
        return self.loc

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the Bayesian parameters, tied ones once."""
        return tuple(self._terms)

    @property
    def padding(self) -> Mapping[str, int]:
        """The row of an embedding that is never drawn, by the name of its matrix."""
        return self._padding

    def deterministic_parameters(self) -> list[nn.Parameter]:
        """The parameters of the module that stay ordinary."""
        named = self.loc.named_parameters()
        return [parameter for name, parameter in named if name not in self._terms]

    def eta_parameters(self) -> list[nn.Parameter]:
        """The learnt step sizes of sharpening, one for each weight; empty without its literal form.

        They need a learning rate far below that of `weight_parameters`: see `core.sharpening`.
        """
        return list(self.eta.parameters()) if hasattr(self, "eta") else []

    def tau_parameters(self) -> list[nn.Parameter]:
        """log sigma0^2 of each tensor that is sharpened; empty without the shrinking form.

        `WidthSGD` suits them, at the rate of the widths.
        """
        return [] if self.shrinking is None else list(self.shrinking.parameters())

    def mean_parameters(self) -> list[nn.Parameter]:
        """The posterior's means, and what is deterministic: all but the widths and step sizes.

        The widths, `rho.parameters()`, need a rate of their own: see `WidthSGD`.
        """
        return list(self.loc.parameters())

    def weight_parameters(self) -> list[nn.Parameter]:
        """All parameters but those of sharpening."""
        return [*self.mean_parameters(), *self.rho.parameters()]

    def sigmas(self) -> dict[str, Tensor]:
        """The posterior's standard deviations by name."""
        rho = ((name, self.rho.get_parameter(name)) for name in self._terms)
        return {name: softplus(value.detach()) + self.min_sigma for name, value in rho}

    def noise(self, seed: int) -> Noise:
        """The standard normal noise that belongs to `seed`, for `sample`."""
        return normal_noise(self._drawn(self._parameters_of(self.loc)), seed)

    def sample(
        self,
        generator: torch.Generator | None = None,
        *,
        noise: Noise | None = None,
        pull: bool = True,
    ) -> Weights:
        """Draw all weights once, with randomness from `generator` or from given `noise`.

        `net.sample(noise=weights.noise.mirrored())` draws the mirror image of an earlier draw: it
        follows the posterior just as exactly, and no new noise is needed.

        pull: whether the gradient of `kl` pulls the means towards the prior. Without it, only the
            widths are charged, and `net.pull` has to be called after each step.
        """
        if not pull:
            require_pull(self._terms)
        parameters = self._parameters_of(self.loc)
        locs = self._drawn(parameters)
        if noise is None:
            noise = normal_noise(locs, draw_seed(generator))
        elif [eps.shape for eps in noise.tensors] != [loc.shape for loc in locs]:
            raise ConfigError("this noise belongs to another network: its shapes do not fit")
        rhos = self._drawn(self._parameters_of(self.rho))
        terms = tuple(self._terms.values())
        tensors, kl, stats = draw(locs, rhos, terms, noise, self.min_sigma, pull)
        drawn = {}
        for name, tensor, loc in zip(self._terms, tensors, parameters, strict=True):
            if name in self._padding:
                row = self._padding[name]
                tensor = torch.cat([tensor[:row], loc[row : row + 1], tensor[row:]])
            drawn[name] = tensor.reshape(loc.shape)
        return Weights(drawn, kl, noise, stats)

    @torch.no_grad()
    def pull(self, weights: Weights, rate: float) -> None:
        """Move the means towards the prior, as its natural gradient at a draw says.

            weights = net.sample(pull=False)
            loss = nll(net(x, weights=weights), y) + c * weights.kl
            loss.backward()
            means.step()                        # of a loss without the prior's pull
            net.pull(weights, 2 * c * lr)       # lr: that of `WidthSGD`
            widths.step()

        An optimiser that divides gradients by their size, as Adam does, follows the prior in whole
        steps wherever the data say nothing yet, however little the KL counts. This takes the
        prior's pull out of it, as AdamW does with weight decay.

        A Gaussian's natural gradient by its mean is sigma^2 times the ordinary one, here lambda mu
        with lambda the prior's precision, so that the share rate lambda sigma^2 of a mean goes: of
        a weight that data say nothing of (sigma^2 = 1 / lambda) the most, of one that they know
        well next to nothing. The step is an implicit one, mu / (1 + rate lambda sigma^2), which
        never goes too far. It is for priors whose expectation depends on expected squares alone,
        such as `Gaussian` and `FittedGaussian`.
        """
        self._require_own(weights)
        require_pull(self._terms)
        rhos, locs = (self._drawn(self._parameters_of(tree)) for tree in (self.rho, self.loc))
        loops = kernel_for([*locs, *rhos]) or reference
        for name, loc, rho, factor in zip(
            self._terms, locs, rhos, weights.prior_factors, strict=True
        ):
            loops.pull(loc, rho, self.min_sigma, rate, factor)
            if name in self._padding:  # what was pulled is a copy
                row, parameter = self._padding[name], self.loc.get_parameter(name)
                parameter[:row], parameter[row + 1 :] = loc[:row], loc[row:]

    @torch.no_grad()
    def drop(self, dropped: Mapping[str, Tensor]) -> None:
        """Drop weights for good, where the mask of a name is true.

        Their means become 0, their standard deviations `min_sigma`, and the KL is that of the
        others: a scale that a prior fits is fitted to those. What a step of an optimiser moves of
        them has to be dropped again. Weights that were dropped before stay so.
        """
        for name, mask in dropped.items():
            if name not in self._terms:
                raise ConfigError(
                    f"{name} is no Bayesian parameter, so that none of it can be dropped; there "
                    f"are: {', '.join(self._terms)}"
                )
            self.loc.get_parameter(name).masked_fill_(mask, 0.0)
            self.rho.get_parameter(name).masked_fill_(mask, DROPPED_RHO)
        self._count_dropped()

    def dropped(self) -> dict[str, Tensor]:
        """Which weights were dropped: masks by name."""
        return {name: self.rho.get_parameter(name).detach() == DROPPED_RHO for name in self._terms}

    def _count_dropped(self) -> None:
        """Let the prior of each tensor know which of its weights are left."""
        masks = self._drawn(list(self.dropped().values()))
        for (name, term), mask in zip(list(self._terms.items()), masks, strict=True):
            if term.dropped or bool(mask.any()):
                self._terms[name] = term.without(mask)

    def factors(self, generator: torch.Generator | None = None) -> dict[str, Factor]:
        """The posterior of each tensor, its prior and its KL, without rows that are never drawn.

        generator: the source of the draw behind divergences that are not exact.
        """
        locs, rhos = (self._drawn(self._parameters_of(tree)) for tree in (self.loc, self.rho))
        noise, terms = normal_noise(locs, draw_seed(generator)), list(self._terms.values())
        found = factors(locs, rhos, terms, noise, self.min_sigma)
        return dict(zip(self._terms, found, strict=True))

    def kl(self, generator: torch.Generator | None = None) -> Tensor:
        """KL[q || p], for a loss whose draw `net(x)` made by itself in training mode.

        Exact where the prior has a closed form, otherwise estimated from a draw by `generator`.
        Where the weights are drawn by `sample`, their own `kl` costs nothing more.
        """
        self._kl_asked = True
        return self.sample(generator).kl

    def save(self, path: str | Path) -> None:
        """Write means, widths, priors and settings to a safetensors file, for `bayesrnn.load`."""
        settings = Settings(self._terms, self.min_sigma, self.sharpening)
        save(Path(path), self.state_dict(), settings)

    def mean(self) -> Weights:
        """The posterior mean."""
        return Weights({name: self.loc.get_parameter(name) for name in self._terms})

    def sharpen(
        self,
        weights: Weights,
        loss: Tensor,
        *,
        generator: torch.Generator | None = None,
        clip: float | None = None,
        second_order: bool = False,
        curvature: Mapping[str, Tensor] | None = None,
    ) -> Weights:
        """Adapt a draw, or the mean, to the minibatch whose `loss` was computed with it.

            phi = net.sample()
            theta = net.sharpen(phi, nll(net(x, weights=phi), y))
            loss = nll(net(x, weights=theta), y) + theta.minibatch_kl + theta.kl / minibatches

        theta = phi - eta * g + sigma0 * eps with g = d loss / d phi and fresh noise eps, or that of
        `core.shrinking`, which takes the summed loss. Where the network carries a recurrent state,
        both passes start from the same one. theta has seen the targets, so its likelihood means
        nothing without `theta.minibatch_kl`.

        generator: the source of the noise.
        clip: an upper limit for the norm of g, all weights together. The KL divergence is that of
            the clipped g, which is what theta was shifted by, so it stays exact.
        second_order: let the gradient of what is computed from theta also flow through g. Else g
            counts as a constant, and the graph of `loss` is freed.
        curvature: shrinking form: the curvature of `loss` by the weights of some names, where it is
            known. For the others it is a moving mean of g^2, which training mode learns.
        """
        if self.sharpening is None:
            raise ConfigError(
                "this network cannot sharpen its draws: make it with Bayesian(..., sharpening=True)"
            )
        self._require_own(weights)
        if weights.is_sharpened:
            raise ConfigError(
                "these weights are sharpened already; sharpen the draw they came from"
            )
        kept = {name: slice(row, row + 1) for name, row in self._padding.items()}
        if self.shrinking is not None:
            return sharpen_shrinking(
                weights,
                self.to_sharpen(weights),
                loss,
                self.shrinking,
                draw_seed(generator),
                clip=clip,
                second_order=second_order,
                kept=kept,
                curvature=curvature,
                learn=self.training,
            )
        if curvature is not None:
            raise ConfigError("a curvature belongs to the shrinking form of sharpening")
        etas = [self.eta.get_parameter(name) for name in weights]
        sigma0, seed = self.sharpening.sigma0, draw_seed(generator)
        return sharpen(weights, loss, etas, sigma0, seed, clip, second_order, kept)

    def to_sharpen(self, weights: Weights) -> dict[str, Tensor]:
        """The tensors that `sharpen` moves: of a draw, or parameters that are never drawn."""
        if self.shrinking is None:
            return dict(weights)
        own = self.loc.get_parameter
        return {
            name: weights[name] if name in weights else own(name) for name in self.shrinking.names
        }

    def forward(self, *args: Any, weights: Weights | None = None, **kwargs: Any) -> Any:
        """Run the module with `weights`; without: a fresh draw in training, else the mean."""
        if weights is None:
            if not self.training:
                return self.loc(*args, **kwargs)
            weights = self.sample()
            if not torch.compiler.is_compiling():
                warn_without_kl(weights, lambda: self._kl_asked)
        self._require_own(weights)
        return run_with(self.loc, weights, args, kwargs)

    def extra_repr(self) -> str:
        """The priors and the sharpening in use, for `print(net)`."""
        priors = f"prior={', '.join(sorted({repr(term.prior) for term in self._terms.values()}))}"
        return f"{priors}, sharpening={self.sharpening}" if self.sharpening else priors

    def _require_own(self, weights: Weights) -> None:
        keys = set(weights)
        if weights.is_sharpened and self.shrinking is not None:
            keys -= set(self.shrinking.names) - set(self._terms)
        if keys != set(self._terms):
            raise ConfigError(
                f"these weights belong to another network: they have {', '.join(weights)}; this "
                f"one has {', '.join(self._terms)}"
            )

    def _parameters_of(self, tree: nn.Module) -> list[Tensor]:
        return [tree.get_parameter(name) for name in self._terms]

    def _drawn(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """What is drawn of each parameter: all but a padding row, with at least one axis."""
        drawn = []
        for name, parameter in zip(self._terms, parameters, strict=True):
            if name in self._padding:
                row = self._padding[name]
                parts = [part for part in (parameter[:row], parameter[row + 1 :]) if len(part)]
                parameter = torch.cat(parts) if len(parts) > 1 else parts[0]
            drawn.append(parameter if parameter.dim() else parameter[None])
        return drawn
