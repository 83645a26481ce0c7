"""The loops of posterior sharpening, compiled and with torch operations."""

import itertools

import pytest
import torch

from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.compiled import load_kernel

needs_kernel = pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")

SHAPES = [(1,), (7,), (256,), (1000,), (40, 13), (300, 700), (3, 50_000), (4, 3, 2, 5)]


def loop_tensors(shape, dtype=torch.float32):
    source = torch.Generator().manual_seed(len(shape) + shape[0])
    return [scale * torch.randn(shape, generator=source).to(dtype) for scale in (0.3, 2.0, 0.05)]


def expected_theta(phi, g, eta, eps, scale, sigma0):
    shift = scale * eta.double() * g.double()
    return phi.double() - shift + sigma0 * eps.double(), shift.square().sum().item()


def expected_by_eta(by_theta, g, eta, scale, kl_scale):
    by_theta, g, eta = by_theta.double(), scale * g.double(), eta.double()
    return g * (kl_scale * eta * g - by_theta)


def check(loops, phi, g, eta, rtol, atol):
    """theta, its squares and the gradients by eta and g, against double precision."""
    eps, by_kl = torch.empty_like(phi), phi.new_tensor(0.11)
    loops.normal(eps, 2**62 + 5, 3)
    theta, squares = loops.sharpen(phi, g, eta, 0.7, 0.02, 2**62 + 5, 3)
    expected, expected_squares = expected_theta(phi, g, eta, eps, 0.7, 0.02)
    torch.testing.assert_close(theta.double(), expected, rtol=rtol, atol=atol)
    assert squares == pytest.approx(expected_squares, rel=1e-5)
    by_eta = loops.sharpen_gradient(phi, g, eta, 0.7, by_kl, 0.01)
    expected = expected_by_eta(phi, g, eta, 0.7, 11.0)
    torch.testing.assert_close(by_eta.double(), expected, rtol=1e-5, atol=1e-5)
    # With eta and g exchanged it is the gradient by g: eta (kl_scale * shift - by_theta).
    by_g = loops.sharpen_gradient(phi, eta, g, 0.7, by_kl, 0.01)
    expected = 0.7 * eta.double() * (11.0 * 0.7 * (eta.double() * g) - phi.double())
    torch.testing.assert_close(by_g.double(), expected, rtol=1e-5, atol=1e-5)


@needs_kernel
def test_compiled_loops_against_double_precision(set_threads):
    for threads, shape in itertools.product((1, 2, 3), SHAPES):
        set_threads(threads)
        check(load_kernel(), *loop_tensors(shape), rtol=1e-6, atol=1e-7)


def test_torch_loops_against_double_precision(set_block_size):
    set_block_size(64)
    for shape in SHAPES:
        if torch.Size(shape).numel() < 10_000:
            check(reference, *loop_tensors(shape), rtol=1e-5, atol=1e-5)
            check(reference, *loop_tensors(shape, torch.double), rtol=1e-12, atol=1e-12)


@needs_kernel
def test_the_noise_is_that_of_normal_to_the_last_bit():
    for shape in SHAPES:
        zero, eps = torch.zeros(shape), torch.empty(shape)
        for seed, stream in [(0, 0), (12345, 7), (2**63 - 2, 2**40)]:
            load_kernel().normal(eps, seed, stream)
            theta, squares = load_kernel().sharpen(zero, zero, zero, 1.0, 1.0, seed, stream)
            assert torch.equal(theta, eps)
            assert squares == 0


@needs_kernel
def test_any_number_of_threads_gives_the_same_bits(set_threads):
    loops, by_kl = load_kernel(), torch.tensor(0.11)
    for shape in SHAPES:
        phi, g, eta = loop_tensors(shape)
        results = []
        for threads in (1, 2, 3):
            set_threads(threads)
            theta, squares = loops.sharpen(phi, g, eta, 0.7, 0.02, 9, 1)
            by_eta = loops.sharpen_gradient(phi, g, eta, 0.7, by_kl, 0.01)
            results.append((theta, by_eta, squares))
        for theta, by_eta, squares in results[1:]:
            assert torch.equal(theta, results[0][0])
            assert torch.equal(by_eta, results[0][1])
            assert squares == results[0][2]


@needs_kernel
def test_the_compiled_gradient_may_come_in_any_layout():
    by_theta, g, eta = loop_tensors((40, 13))
    rest = (g, eta, 1.0, torch.tensor(0.02), 0.01)
    compiled = load_kernel()
    expected = compiled.sharpen_gradient(by_theta, *rest)
    turned = compiled.sharpen_gradient(by_theta.t().contiguous().t(), *rest)
    assert torch.equal(turned, expected)
    expanded = compiled.sharpen_gradient(torch.ones(()).expand(40, 13), *rest)
    assert torch.equal(expanded, compiled.sharpen_gradient(torch.ones(40, 13), *rest))
