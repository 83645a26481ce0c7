"""The libraries of a wheel give the numbers of the one that is compiled here."""

import ctypes

import pytest
import torch

from bayesrnn.core.kernel import build, reference
from bayesrnn.core.kernel.compiled import Kernel, load_kernel
from bayesrnn.core.kernel.reference import LangevinStep

pytestmark = pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")

SHAPE, FLOOR = (37, 700), 1e-5


def runnable():
    """Those that this processor can run."""
    names, have = list(build.PORTABLE), torch.backends.cpu.get_cpu_capability().lower()
    return names[names.index(have) if have in names else -1 :]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    made = build.compile_portable(build.find_compiler(), folder)
    assert list(made) == list(build.PORTABLE)
    for name in runnable():
        (folder / f"{name}.so").write_bytes(made[name])
    return {name: Kernel(ctypes.CDLL(str(folder / f"{name}.so"))) for name in runnable()}


@pytest.fixture(params=runnable())
def kernel(request, libraries):
    return libraries[request.param]


def tensors(count):
    generator = torch.Generator().manual_seed(5)
    loc, rho, *others = (torch.randn(SHAPE, generator=generator) for _ in range(count))
    return loc, 3 * rho - 2, *others


def test_the_noise_is_the_same_to_the_last_bit(kernel):
    for size, seed, stream in [(1, 0, 0), (255, 7, 1), (300_001, 2**63 - 2, 2**40)]:
        found, expected = torch.empty(size), torch.empty(size)
        squares = kernel.normal(found, seed, stream)
        assert reference.normal(expected, seed, stream) == pytest.approx(squares, rel=1e-6)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("group", [(), (0,), (1,), (0, 1)])
def test_draws(kernel, group):
    loc, rho, eps = tensors(3)
    for expected in (False, True):
        weight, sums, squares = kernel.draw(loc, rho, eps, -1, FLOOR, group, expected)
        right = reference.draw(
            *(t.double() for t in (loc, rho, eps)), -1, FLOOR, group, expected
        )  # fmt: skip
        torch.testing.assert_close(weight.double(), right[0], rtol=2e-6, atol=1e-6)
        assert sums == pytest.approx(right[1], rel=1e-5)
        if group:
            torch.testing.assert_close(squares.double(), right[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("columns", [1, SHAPE[1]])
def test_gradients(kernel, columns):
    base, rho, eps, by_weight = tensors(4)
    factor, kl = torch.rand(SHAPE[0], columns), torch.tensor(0.37)
    for score, exact in ((base, False), (base, True), (None, False)):
        given = (by_weight, rho, eps, 1, FLOOR, kl, factor, score, exact)
        found = kernel.gradient(*given)
        right = reference.gradient(
            *(t.double() if isinstance(t, torch.Tensor) else t for t in given)
        )
        for one, other in zip(found[:2], right[:2], strict=True):
            torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)
        assert found[2] == pytest.approx(right[2], rel=1e-5)


def test_sharpened_draws_and_their_gradients(kernel):
    phi, g, eta, by_theta = tensors(4)
    theta, squares = kernel.sharpen(phi, g, eta, 0.1, 0.02, 3, 4)
    right, right_squares = reference.sharpen(phi, g, eta, 0.1, 0.02, 3, 4)
    torch.testing.assert_close(theta, right, rtol=1e-6, atol=1e-6)
    assert squares == pytest.approx(right_squares, rel=1e-5)
    given = (by_theta, g, eta, 0.1, torch.tensor(0.11), 0.02**2)
    found, right = kernel.sharpen_gradient(*given), reference.sharpen_gradient(*given)
    torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-4)


def test_steps_in_place(kernel):
    theta, g, squares = tensors(3)
    step = LangevinStep(rate=0.01, pull=0.5, noise=0.1, alpha=0.9, eps=1e-3)
    for take in (
        lambda loops, a, b: loops.langevin(a, g, b.square_(), step, 1, 2),
        lambda loops, a, b: loops.langevin(a, g, None, step, 1, 2),
        lambda loops, a, b: loops.pull(a, b, FLOOR, 0.1, torch.ones(SHAPE[0], 1) * -0.5),
        lambda loops, a, b: loops.width_step(a, b, 0.1, 0.05),
    ):
        pairs = [(loops, theta.clone(), squares.clone()) for loops in (kernel, reference)]
        for pair in pairs:
            take(*pair)
        for found, right in zip(pairs[0][1:], pairs[1][1:], strict=True):
            torch.testing.assert_close(found, right, rtol=1e-5, atol=1e-5)


def test_averages(kernel):
    logits = tensors(2)[1]
    mean, entropy = torch.zeros(SHAPE), torch.zeros(SHAPE[0])
    kernel.average(logits, 1.0, mean, entropy)
    right = logits.double().softmax(1)
    torch.testing.assert_close(mean.double(), right, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(
        entropy.double(), torch.special.entr(right).sum(1), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("batch", [1, 70])
def test_sparse_products(kernel, batch):
    matrix = tensors(2)[0] * (tensors(3)[2] > 1)
    counts = (matrix != 0).sum(1)
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    columns = matrix.nonzero()[:, 1]
    x, bias = torch.randn(batch, SHAPE[1]), torch.randn(SHAPE[0])
    for kind in (torch.int32, torch.uint16):
        out = torch.empty(batch, SHAPE[0])
        kernel.sparse_product(starts, columns.to(kind), matrix[matrix != 0], x, out, bias)
        torch.testing.assert_close(out, x @ matrix.T + bias, rtol=1e-4, atol=1e-4)
