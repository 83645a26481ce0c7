"""The compiled loops, against torch in double precision."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.kernel import compiled as kernel
from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.compiled import load_kernel
from bayesrnn.core.norms import total_norm
from bayesrnn.core.priors import Gaussian, ScaleMixture

pytestmark = pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")

FLOOR, KL_WEIGHT = 1e-5, 0.37
#: Shapes from one row to several chunks of rows, with axes of one number in every place.
SHAPES = [
    (7,),
    (1,),
    (1000,),
    (40, 13),
    (6, 1),
    (1, 6),
    (1, 1),
    (300, 700),
    (3, 5000),
    (4, 3, 2, 5),
    (4, 1, 2, 5),
    (1, 3, 1, 5),
    (4, 3, 1, 1),
]


@pytest.fixture(scope="module")
def compiled():
    return load_kernel()


def tensors(shape, spread=3.0):
    generator = torch.Generator().manual_seed(len(shape) + shape[0])

    def normal(scale):
        return scale * torch.randn(shape, generator=generator)

    return normal(0.3), normal(spread) - 2, normal(1.0), normal(0.5)


def every_group(shape):
    """No axis, each one of them, and all."""
    return [(), *((axis,) for axis in range(len(shape))), tuple(range(len(shape)))]


@pytest.mark.parametrize("shape", SHAPES)
def test_draw_against_double_precision(shape, compiled, set_threads):
    loc, rho, eps, _ = tensors(shape)
    sigma = F.softplus(rho.double()) + FLOOR
    for threads, sign in ((1, 1), (2, -1), (3, 1)):
        set_threads(threads)
        theta = loc.double() + sign * sigma * eps.double()
        for group, expected in itertools.product(every_group(shape), (False, True)):
            weight, sums, squares = compiled.draw(loc, rho, eps, sign, FLOOR, group, expected)
            torch.testing.assert_close(weight.double(), theta, rtol=2e-6, atol=1e-7)
            assert sums.log_sigma == pytest.approx(sigma.log().sum().item(), rel=1e-5, abs=1e-4)
            assert sums.sigma2 == pytest.approx(sigma.square().sum().item(), rel=1e-5)
            assert sums.loc2 == pytest.approx(loc.double().square().sum().item(), rel=1e-5)
            if squares is not None:
                single = loc.double().square() + sigma.square() if expected else theta.square()
                wanted = single.sum(group, keepdim=True)
                torch.testing.assert_close(squares.double(), wanted, rtol=1e-5, atol=1e-6)


def test_squares_of_rows_columns_and_tensors_are_summed_by_the_loop(compiled):
    for shape, group in [((40, 13), (0,)), ((40, 13), (1,)), ((4, 3, 2), (0, 1, 2)), ((7,), (0,))]:
        loc, rho, eps, _ = tensors(shape)
        assert compiled.draw(loc, rho, eps, 1, FLOOR, group, False)[2] is not None


@pytest.mark.parametrize("floor", [0.0, 1e-12, 1e-30])
def test_logarithms_of_tiny_deviations_are_exact(floor, compiled):
    # Products of four of them underflow; far down, so does exp(rho) in single precision.
    rho = torch.linspace(-300, -15, 3000)
    zero = torch.zeros(3000)
    x = rho.double()
    exact = torch.where(x < -40, x, F.softplus(x).log()) if floor == 0 else None
    exact = (F.softplus(x) + floor).log() if exact is None else exact
    for loops in (compiled, reference):
        sums = loops.draw(zero, rho, zero, 1, floor, (), False)[1]
        assert sums.log_sigma == pytest.approx(exact.sum().item(), rel=1e-6)


def factors(shape):
    generator = torch.Generator().manual_seed(1)
    shapes = [[1] * len(shape), [1, *shape[1:]], [shape[0], *[1] * (len(shape) - 1)], list(shape)]
    if len(shape) == 4:
        shapes.append([shape[0], 1, *shape[2:]])
    return [torch.randn(each, generator=generator) for each in shapes]


@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_against_double_precision(shape, compiled):
    base, rho, eps, by_weight = tensors(shape)
    for factor, kind, sign in itertools.product(
        factors(shape), ("weight", "loc", "alone"), (1, -1)
    ):
        exact = kind == "loc"
        by_loc, by_rho, squares = compiled.gradient(
            by_weight, rho, eps, sign, FLOOR, torch.tensor(KL_WEIGHT), factor,
            None if kind == "alone" else base, exact,
        )  # fmt: skip
        g, x, noise, f = by_weight.double(), rho.double(), eps.double(), factor.double()
        sigma = F.softplus(x) + FLOOR
        expected_loc = g - KL_WEIGHT * (f if kind == "alone" else f * base.double())
        by_sigma = sign * noise * (g if exact else expected_loc) - KL_WEIGHT / sigma
        if exact:
            by_sigma = by_sigma - KL_WEIGHT * f * sigma
        expected_rho = by_sigma * torch.sigmoid(x)
        torch.testing.assert_close(by_loc.double(), expected_loc, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(by_rho.double(), expected_rho, rtol=1e-5, atol=2e-6)
        assert squares.by_loc == pytest.approx(expected_loc.square().sum().item(), rel=1e-5)
        assert squares.by_rho == pytest.approx(expected_rho.square().sum().item(), rel=1e-5)


def test_gradients_may_come_in_any_layout(compiled):
    _, rho, eps, by_weight = tensors((40, 13))
    factor = torch.ones(1, 1)
    arguments = (rho, eps, 1, FLOOR, torch.tensor(0.1), factor, None, False)
    expected = compiled.gradient(by_weight, *arguments)
    turned = compiled.gradient(by_weight.t().contiguous().t(), *arguments)
    assert torch.equal(turned[0], expected[0])
    same = compiled.gradient(torch.ones(()).expand(40, 13), *arguments)
    assert torch.equal(same[0], compiled.gradient(torch.ones(40, 13), *arguments)[0])


@pytest.mark.parametrize("prior", [ScaleMixture(), ScaleMixture(per="weight"), Gaussian(0.5)])
def test_a_whole_draw_is_that_of_the_torch_operations(prior, monkeypatch):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Bayesian(nn.LSTM(30, 20, 2), prior, sigma_init=0.05)
        x = torch.randn(7, 3, 30)
    noise = net.noise(3)

    def results():
        net.zero_grad()
        weights = net.sample(noise=noise)
        (net(x, weights=weights)[0].square().sum() + 0.01 * weights.kl).backward()
        norm = total_norm([parameter.grad for parameter in net.parameters()])
        assert sum(weights.squared_gradients) == pytest.approx(norm**2, rel=1e-4)
        return [weights.kl.detach(), *(parameter.grad.clone() for parameter in net.parameters())]

    fast = results()
    monkeypatch.setattr(kernel, "load_kernel", lambda: None)
    slow = results()
    torch.testing.assert_close(fast, slow, rtol=2e-4, atol=1e-5)


def test_extreme_spreads_stay_finite(compiled):
    rho = torch.tensor([-1e30, -200.0, -90.0, -30.0, 0.0, 30.0, 200.0])
    loc, eps = torch.zeros(7), torch.ones(7)
    weight, _, _ = compiled.draw(loc, rho, eps, 1, FLOOR, (), False)
    torch.testing.assert_close(weight, F.softplus(rho) + FLOOR, rtol=1e-6, atol=0)


@pytest.mark.parametrize("shape", [(1, 1), (1, 30), (70, 1), (70, 30)])
def test_the_pull_of_a_prior(compiled, shape):
    """In float64 from the formula, for each way that groups can lie."""
    loc, rho = torch.randn(70, 30), torch.randn(70, 30) - 2
    factor = -torch.rand(shape) * 20
    sigma = F.softplus(rho.double()) + FLOOR
    expected = loc.double() / (1 - 0.3 * factor.double() * sigma.square())
    for loops in (compiled, reference):
        moved = loc.clone()
        loops.pull(moved, rho, FLOOR, 0.3, factor)
        torch.testing.assert_close(moved.double(), expected, rtol=3e-6, atol=1e-7)


def test_a_step_of_widths(compiled):
    """Bit for bit: runs with and without a compiler go the same way."""
    for size in (1, 7, 100_001):
        rho, g = torch.randn(size), torch.randn(size)
        expected = rho - (g * 0.3).clamp(-0.2, 0.2)
        for loops in (compiled, reference):
            moved = rho.clone()
            loops.width_step(moved, g, 0.3, 0.2)
            assert torch.equal(moved, expected)
            assert (moved - rho).abs().max() <= 0.2 + 1e-6


def test_sum_of_squares(compiled):
    for size in (1, 511, 65_537, 1_000_003):
        x = torch.randn(size, generator=torch.Generator().manual_seed(size))
        expected = x.double().square().sum().item()
        assert compiled.sum_of_squares(x) == pytest.approx(expected, rel=1e-6)
        assert reference.sum_of_squares(x) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (2, 3, 700), (40, 10_001)])
def test_average_against_double_precision(shape, compiled, set_threads):
    generator = torch.Generator().manual_seed(shape[0])
    mean = torch.rand(shape, generator=generator).softmax(-1)
    entropy = torch.rand(shape[:-1], generator=generator)
    for threads, spread, share in itertools.product((1, 3), (0.1, 4.0, 60.0), (1.0, 0.25)):
        set_threads(threads)
        logits = spread * torch.randn(shape, generator=generator)
        probs = logits.double().softmax(-1)
        own = -torch.xlogy(probs, probs).sum(-1)
        got_mean, got_entropy = mean.clone(), entropy.clone()
        compiled.average(logits, share, got_mean, got_entropy)
        wanted = torch.lerp(mean.double(), probs, share)
        torch.testing.assert_close(got_mean.double(), wanted, rtol=1e-5, atol=2e-7)
        wanted = torch.lerp(entropy.double(), own, share)
        torch.testing.assert_close(got_entropy.double(), wanted, rtol=1e-5, atol=1e-5)


def test_average_rules_classes_out_and_hides_no_damage(compiled):
    logits = torch.zeros(4, 600)
    logits[0, 300:] = -math.inf  # half of the classes are impossible
    logits[1, 7] = math.nan
    logits[2] = -math.inf
    mean, entropy = torch.zeros(4, 600), torch.zeros(4)
    compiled.average(logits, 1.0, mean, entropy)
    torch.testing.assert_close(mean[0], torch.cat([torch.full((300,), 1 / 300), torch.zeros(300)]))
    assert (mean[0, 300:] == 0).all()
    assert entropy[0].item() == pytest.approx(math.log(300), rel=1e-6)
    assert mean[1:3].isnan().all()
    assert entropy[1:3].isnan().all()
    assert entropy[3].item() == pytest.approx(math.log(600), rel=1e-6)


def compressed(dense, kind):
    rows, columns = dense.nonzero(as_tuple=True)
    starts = torch.zeros(len(dense) + 1, dtype=torch.long)
    torch.cumsum((dense != 0).sum(1), 0, out=starts[1:])
    return starts, columns.to(kind), dense[rows, columns]


@pytest.mark.parametrize("kind", [torch.uint16, torch.int32])
def test_sparse_product_against_double_precision(kind, compiled, set_threads):
    generator = torch.Generator().manual_seed(0)
    dense = torch.randn(301, 650, generator=generator)
    dense *= torch.rand(301, 650, generator=generator) > 0.7
    bias, matrix = torch.randn(301, generator=generator), compressed(dense, kind)
    for batch, threads in zip((1, 2, 16, 17, 40, 64, 100), (1, 3, 2, 1, 3, 2, 1), strict=True):
        set_threads(threads)
        x, out = torch.randn(batch, 650, generator=generator), torch.full((batch, 301), 7.0)
        expected = x.double() @ dense.double().t()
        compiled.sparse_product(*matrix, x, out)
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=5e-5)
        compiled.sparse_product(*matrix, x, out, bias, add=True)
        torch.testing.assert_close(out.double(), 2 * expected + bias, rtol=1e-5, atol=1e-4)


def test_sparse_products_stay_within_their_arrays(compiled):
    # What lies around each array would show in the sums, or be written over.
    dense = torch.ones(5, 3)
    starts, columns, values = compressed(dense, torch.uint16)
    for batch in (1, 3, 20):
        guarded = torch.full((batch + 2, 5), 9.0)
        x = torch.full((batch + 2, 3), math.nan)
        x[1:-1] = 1.0
        compiled.sparse_product(starts, columns, values, x[1:-1], guarded[1:-1])
        assert (guarded[1:-1] == 3).all()
        assert (guarded[[0, -1]] == 9).all()
