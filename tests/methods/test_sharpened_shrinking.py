"""The sharpened method in the form that shrinks: its loss, its bound, and what learns."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from bayesrnn.core.curvature import watched
from bayesrnn.core.init import absolute
from bayesrnn.core.widths import WidthSGD
from bayesrnn.errors import ConfigError
from bayesrnn.methods.base import Hints
from bayesrnn.methods.sharpened import SharpenedOptions

from .test_sharpened import (
    HINTS,
    KL_SCALE,
    Guess,
    bound_of,
    carried,
    exact_nll,
    make_method,
)

__all__ = ["carried"]


def make_shrinking(**options):
    return make_method(form="shrinking", **options)


def test_the_output_bias_is_sharpened_though_it_is_never_drawn(make_model, carried):
    method = make_shrinking(sigma0=0.1)
    net = method.build(make_model(), HINTS).double()
    assert "output.bias" not in net.names
    assert "output.bias" in net.shrinking.names
    assert not net.eta_parameters()
    loss = method.loss(net, carried(None), KL_SCALE)
    assert set(loss.terms) == {"nll", "kl", "minibatch_kl"}
    assert loss.seen_kl > 0
    assert loss.seen_kl == pytest.approx(loss.terms["minibatch_kl"])
    loss.total.backward()
    assert all(tau.grad is not None and tau.grad.isfinite() for tau in net.tau_parameters())
    assert net.module.get_parameter("output.bias").grad.any()
    found = method.diagnostics(net)
    assert found["sigma0.output.bias"] == pytest.approx(0.1)


def test_the_curvature_of_the_output_is_that_of_the_draw(make_model, carried, monkeypatch):
    """Its closed form is given to `sharpen`; without the hint everything is a moving mean."""
    seen = []
    for hints in (replace(HINTS, softmax_layer="output"), HINTS):
        method = make_shrinking(sigma0=0.1)
        net = method.build(make_model(), hints).double()
        phis = []
        sharpen = type(net).sharpen

        def noted(self, phi, *args, sharpen=sharpen, phis=phis, **kwargs):
            phis.append(phi)
            seen.append(kwargs["curvature"])
            return sharpen(self, phi, *args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(type(net), "sharpen", noted)
            method.loss(net, carried(None), KL_SCALE)
        if hints.softmax_layer:
            with watched(net.module, "output") as layer, torch.no_grad():
                carried(None)(partial(net, weights=phis[0]))
            expected = layer.curvature()
    closed, nothing = seen
    assert nothing is None
    assert set(closed) == {"output.weight", "output.bias"}
    for name, curvature in closed.items():
        torch.testing.assert_close(curvature, expected[name])


def test_sigma0_has_the_rate_of_widths_and_the_prior_of_none(make_model):
    method = make_shrinking(sigma0_lr=0.5, sigma_lr=2.0)
    net = method.build(make_model(), HINTS)
    (rest,) = method.parameter_groups(net)
    widths = method.widths(net, 3)
    assert isinstance(widths, WidthSGD)
    of_rho, of_tau = widths.param_groups
    assert (of_rho["lr"], of_tau["lr"]) == (6.0, 1.5)
    taus = {id(tau) for tau in net.tau_parameters()}
    assert {id(p) for p in of_tau["params"]} == taus
    assert not taus & {id(p) for p in rest["params"]}
    assert taus <= {id(p) for p in method.undecayed(net)}
    alone = make_shrinking(sigma_lr=0.0).widths(net, 3)
    assert [group["lr"] for group in alone.param_groups] == [3.0]
    fixed = make_shrinking(sigma0_lr=0.0)
    net = fixed.build(make_model(), HINTS)
    assert fixed.widths(net, 3) is None
    assert not any(tau.requires_grad for tau in net.tau_parameters())


@pytest.mark.parametrize("sigma0", [0.2, 1.0])
@pytest.mark.parametrize("targets", [[0, 0, 0, 1], [1, 1, 1, 1, 1, 0]], ids=["zeros", "ones"])
def test_the_bound_is_above_the_exact_likelihood(sigma0, targets):
    """By quadrature; and below that of the literal form where sigma0 is not small."""
    hints = Hints(sigma_init={"*": absolute(0.1)})
    bounds = {}
    for form in ("literal", "shrinking"):
        method = make_method(form=form, sigma0=sigma0)
        net = method.build(Guess(0.3), hints)
        bounds[form] = bound_of(net, method, torch.tensor(targets)).sum(1)
    error = bounds["shrinking"].std() / math.sqrt(len(bounds["shrinking"]))
    exact = exact_nll(0.3, sigma0, torch.tensor(targets))
    assert bounds["shrinking"].mean() > exact - 4 * error
    if sigma0 == 1.0:
        assert bounds["shrinking"].mean() < bounds["literal"].mean() - 4 * error


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"form": "shrinking", "eta_init": 0.1}, "--eta-init"),
        ({"sharpen_names": ("*bias*",)}, "--sharpen-names"),
        ({"form": "other"}, "--form"),
        ({"sigma0_lr": -1.0}, "--sigma0-lr"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(wrong, words):
    with pytest.raises(ConfigError, match=words):
        SharpenedOptions(**wrong)
