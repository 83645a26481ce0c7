"""The compiled loops, against torch in double precision and a published random number."""

import ctypes
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.kernel import compiled as kernel
from bayesrnn.core.kernel import reference as arithmetic
from bayesrnn.core.kernel.compiled import load_kernel
from bayesrnn.core.norms import total_norm
from bayesrnn.core.priors import Gaussian, ScaleMixture

pytestmark = pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")

FLOOR, KL_WEIGHT = 1e-5, 0.37
#: Shapes, and the axes of a group: none, a column, a row, the whole, and one in the middle.
CASES = [
    ((7,), None),
    ((1000,), (0,)),
    ((40, 13), (0,)),
    ((40, 13), (1,)),
    ((300, 700), (0,)),
    ((300, 700), (1,)),
    ((300, 700), (0, 1)),
    ((3, 5000), (0,)),
    ((4, 3, 2, 5), (0,)),
    ((4, 3, 2, 5), (1,)),
    ((4, 3, 2, 5), (0, 1, 2, 3)),
]


@pytest.fixture(scope="module")
def compiled():
    return load_kernel()


def tensors(shape, spread=3.0):
    generator = torch.Generator().manual_seed(len(shape) + shape[0])

    def normal(scale):
        return scale * torch.randn(shape, generator=generator)

    return normal(0.3), normal(spread) - 2, normal(1.0), normal(0.5)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("shape", "group"), CASES)
def test_draw_against_double_precision(shape, group, sign, threads, compiled, set_threads):
    set_threads(threads)
    loc, rho, eps, _ = tensors(shape)
    weight, sums, squares = compiled.draw(loc, rho, eps, sign, FLOOR, group)
    sigma = F.softplus(rho.double()) + FLOOR
    expected = loc.double() + sign * sigma * eps.double()
    torch.testing.assert_close(weight.double(), expected, rtol=2e-6, atol=1e-7)
    assert sums.log_sigma == pytest.approx(sigma.log().sum().item(), rel=1e-5, abs=1e-4)
    assert sums.sigma2 == pytest.approx(sigma.square().sum().item(), rel=1e-5)
    assert sums.loc2 == pytest.approx(loc.double().square().sum().item(), rel=1e-5)
    if group is None:
        assert squares is None
    else:
        torch.testing.assert_close(
            squares.double(), expected.square().sum(group, keepdim=True), rtol=1e-5, atol=1e-6
        )


def factors(shape):
    generator = torch.Generator().manual_seed(1)
    shapes = [[1] * len(shape), [1, *shape[1:]], [shape[0], *[1] * (len(shape) - 1)], list(shape)]
    if len(shape) == 4:
        shapes.append([shape[0], 1, *shape[2:]])
    return [torch.randn(each, generator=generator) for each in shapes]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind", ["weight", "loc", "alone"])
@pytest.mark.parametrize("shape", sorted({shape for shape, _ in CASES}))
def test_gradient_against_double_precision(shape, kind, sign, compiled):
    base, rho, eps, by_weight = tensors(shape)
    exact = kind == "loc"
    for factor in factors(shape):
        by_loc, by_rho, squares = compiled.gradient(
            by_weight, rho, eps, sign, FLOOR, KL_WEIGHT, factor,
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
        expected = (expected_loc.square().sum() + expected_rho.square().sum()).item()
        assert squares == pytest.approx(expected, rel=1e-5)


def test_gradients_may_come_in_any_layout(compiled):
    _, rho, eps, by_weight = tensors((40, 13))
    factor = torch.ones(1, 1)
    arguments = (rho, eps, 1, FLOOR, 0.1, factor, None, False)
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
        assert weights.squared_gradient == pytest.approx(norm**2, rel=1e-4)
        return [weights.kl.detach(), *(parameter.grad.clone() for parameter in net.parameters())]

    fast = results()
    monkeypatch.setattr(kernel, "load_kernel", lambda: None)
    slow = results()
    torch.testing.assert_close(fast, slow, rtol=2e-4, atol=1e-5)


def test_extreme_spreads_stay_finite(compiled):
    rho = torch.tensor([-1e30, -200.0, -90.0, -30.0, 0.0, 30.0, 200.0])
    loc, eps = torch.zeros(7), torch.ones(7)
    weight, _, _ = compiled.draw(loc, rho, eps, 1, FLOOR, None)
    torch.testing.assert_close(weight, F.softplus(rho) + FLOOR, rtol=1e-6, atol=0)


def test_sum_of_squares(compiled):
    for size in (1, 511, 65_537, 1_000_003):
        x = torch.randn(size, generator=torch.Generator().manual_seed(size))
        expected = x.double().square().sum().item()
        assert compiled.sum_of_squares(x) == pytest.approx(expected, rel=1e-6)
        assert arithmetic.sum_of_squares(x) == pytest.approx(expected, rel=1e-5)


def philox_words(counter, stream, key):
    """The reference algorithm, one counter at a time, in Python's integers."""
    mask = 2**32 - 1
    c = [counter & mask, counter >> 32, stream & mask, stream >> 32]
    k = [key & mask, key >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def test_the_reference_gives_the_published_numbers():
    # Known answers of the authors' Random123 library for philox4x32-10.
    assert philox_words(0, 0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    full = 2**64 - 1
    assert philox_words(full, full, full) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_noise_is_box_and_muller_on_philox(compiled):
    seed, stream, size = 2**63 - 5, 11, 700
    found = torch.empty(size)
    squares = compiled.normal(found, seed, stream)
    expected = np.empty(3 * 256)
    for counter in range(3 * 64):
        words = philox_words(counter, stream, seed)
        block, lane = divmod(counter, 64)
        for pair in (0, 2):
            u = ((words[pair] >> 1) + 0.5) / 2**31
            turn = np.int32(np.uint32(words[pair + 1])) / 2**32
            length = math.sqrt(-2 * math.log(u))
            at = block * 256 + pair * 64 + lane
            expected[at] = length * math.cos(2 * math.pi * turn)
            expected[at + 64] = length * math.sin(2 * math.pi * turn)
    np.testing.assert_allclose(found.numpy(), expected[:size], rtol=1e-5, atol=2e-6)
    assert squares == pytest.approx(float((expected[:size] ** 2).sum()), rel=1e-5)


def test_it_is_compiled_once(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    code = "from bayesrnn.core.kernel.compiled import load_kernel; assert load_kernel()"
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
    assert len(list(tmp_path.rglob("*.so"))) == 1


def test_without_the_kernel_everything_still_works(monkeypatch):
    monkeypatch.setenv("BAYESRNN_KERNEL", "off")
    assert load_kernel.__wrapped__() is None


def test_a_compiler_that_fails_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "false")
    assert load_kernel.__wrapped__() is None
    assert not list(tmp_path.rglob("*.so"))


def test_it_compiles_without_openmp_too(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ctypes, "CDLL", refuse_first(ctypes.CDLL))
    single = load_kernel.__wrapped__()
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    expected = load_kernel().sum_of_squares(x)
    assert single.sum_of_squares(x) == pytest.approx(expected, rel=1e-6)


def refuse_first(load):
    """A loader that fails once, as on a system whose torch has no OpenMP."""
    calls = []

    def loader(path):
        calls.append(path)
        if len(calls) == 1:
            raise OSError("undefined symbol: GOMP_parallel")
        return load(path)

    return loader


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (2, 3, 700), (40, 10_001)])
@pytest.mark.parametrize("spread", [0.1, 4.0, 60.0])
def test_average_against_double_precision(shape, spread, threads, compiled, set_threads):
    set_threads(threads)
    generator = torch.Generator().manual_seed(shape[0])
    logits = spread * torch.randn(shape, generator=generator)
    mean = torch.rand(shape, generator=generator).softmax(-1)
    entropy = torch.rand(shape[:-1], generator=generator)
    probs = logits.double().softmax(-1)
    own = -torch.xlogy(probs, probs).sum(-1)
    for share in (1.0, 0.25):
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


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kind", [torch.uint16, torch.int32])
@pytest.mark.parametrize("batch", [1, 2, 16, 17, 40, 64, 100])
def test_sparse_product_against_double_precision(batch, kind, threads, compiled, set_threads):
    set_threads(threads)
    generator = torch.Generator().manual_seed(batch)
    dense = torch.randn(301, 650, generator=generator)
    dense *= torch.rand(301, 650, generator=generator) > 0.7
    x, bias = torch.randn(batch, 650, generator=generator), torch.randn(301, generator=generator)
    expected = x.double() @ dense.double().t()
    matrix, out = compressed(dense, kind), torch.full((batch, 301), 7.0)
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
