import math

import pytest
import torch

from bayesrnn.core.kernel import compiled as kernel
from bayesrnn.core.noise import draw_seed, normal_noise


def correlation(a, b):
    return torch.corrcoef(torch.stack([a.double().flatten(), b.double().flatten()]))[0, 1].item()


def assert_standard_normal(numbers):
    """Moments within five standard errors: those of x^k are sqrt(E x^2k - (E x^k)^2) / sqrt(n)."""
    x, n = numbers.double().flatten(), numbers.numel()
    assert abs(x.mean().item()) < 5 / math.sqrt(n)
    assert abs(x.square().mean().item() - 1) < 5 * math.sqrt(2 / n)
    assert abs(x.pow(3).mean().item()) < 5 * math.sqrt(15 / n)
    assert abs(x.pow(4).mean().item() - 3) < 5 * math.sqrt(96 / n)
    # A tail that a coarse method would lose: P(|x| > 3) = erfc(3 / sqrt 2).
    tail = math.erfc(3 / math.sqrt(2))
    share = (x.abs() > 3).double().mean().item()
    assert abs(share - tail) < 5 * math.sqrt(tail / n)


def test_moments_of_many_numbers():
    numbers = normal_noise([torch.empty(1000, 1000)], seed=1).tensors[0]
    assert_standard_normal(numbers)
    # Blocks differ, and the n-th number of a block tells nothing about that of the next one.
    blocks = numbers.flatten()[: 3900 * 256].view(3900, 256)
    assert_standard_normal(blocks[0::2])
    assert abs(correlation(blocks[:-1], blocks[1:])) < 5 / math.sqrt(blocks.numel())
    assert abs(correlation(blocks[:, :64], blocks[:, 64:128])) < 5 / math.sqrt(3900 * 64)
    # The mean over blocks at each place is N(0, 1 / 3900).
    assert_standard_normal(blocks.mean(0) * math.sqrt(3900))


def test_moments_of_one_number_over_many_seeds():
    numbers = torch.cat([normal_noise([torch.empty(1)], seed).tensors[0] for seed in range(4000)])
    assert_standard_normal(numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_number_of_threads_gives_the_same(set_threads, dtype):
    like = [torch.empty(300_005), torch.empty(30, 7), torch.empty(1)]
    like = [tensor.to(dtype) for tensor in like]
    results = []
    for threads in (1, 2, 5):
        set_threads(threads)
        results.append(normal_noise(like, seed=3).tensors)
    for result in results[1:]:
        for one, other in zip(results[0], result, strict=True):
            assert torch.equal(one, other)


def test_a_longer_tensor_begins_with_the_noise_of_a_shorter_one():
    (short,) = normal_noise([torch.empty(300)], seed=5).tensors
    (long,) = normal_noise([torch.empty(70_000)], seed=5).tensors
    assert torch.equal(long[:300], short)
    assert not torch.equal(long[300:600], short)


def test_without_a_compiler_the_noise_is_the_same(monkeypatch):
    like = [torch.empty(40, 30), torch.empty(7), torch.empty(3, 2, 5)]
    compiled = normal_noise(like, seed=11)
    monkeypatch.setattr(kernel, "load_kernel", lambda: None)
    torches = normal_noise(like, seed=11)
    for one, other in zip(compiled.tensors, torches.tensors, strict=True):
        torch.testing.assert_close(one, other, rtol=5e-7, atol=0)
    torch.testing.assert_close(compiled.squares, torches.squares, rtol=1e-6, atol=0)


def test_tensors_of_one_shape_get_different_noise():
    first, second, third = normal_noise([torch.empty(100, 100)] * 3, seed=2).tensors
    for one, other in [(first, second), (first, third), (second, third)]:
        assert abs(correlation(one, other)) < 5 / 100


def test_seeds_differ_in_every_bit():
    like = [torch.empty(20)]
    seeds = [0, 1, 2**31, 2**32, 2**32 + 1, 2**40, 2**62, 2**63 - 2]
    drawn = {tuple(normal_noise(like, seed).tensors[0].tolist()) for seed in seeds}
    assert len(drawn) == len(seeds)
    again = normal_noise(like, 2**40).tensors[0]
    assert tuple(again.tolist()) in drawn


def test_shape_type_and_layout_follow_the_weights():
    like = [
        torch.nn.Parameter(torch.empty(3, 4, 5, dtype=torch.float64)),
        torch.empty(4, 6).t(),
        torch.empty(2, 3, 4, 4).to(memory_format=torch.channels_last),
    ]
    for tensor, given in zip(normal_noise(like, 0).tensors, like, strict=True):
        assert (tensor.shape, tensor.dtype) == (given.shape, given.dtype)
        assert tensor.stride() == given.stride()
        assert not tensor.requires_grad
        assert tensor.unique().numel() == tensor.numel()


def test_mirrored_twice_is_the_noise_itself():
    noise = normal_noise([torch.empty(4)], 9)
    mirror = noise.mirrored()
    assert (noise.sign, mirror.sign, mirror.mirrored().sign) == (1, -1, 1)
    assert mirror.seed == 9
    assert mirror.tensors[0] is noise.tensors[0]


def test_a_given_generator_decides_and_the_global_one_is_left_alone():
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(1)
    first, second = draw_seed(generator), draw_seed(generator)
    normal_noise([torch.empty(100)], first)
    assert first != second
    assert draw_seed(torch.Generator().manual_seed(1)) == first
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_generator_the_global_one_decides():
    with torch.random.fork_rng():
        torch.manual_seed(4)
        first = draw_seed(None)
        second = draw_seed(None)
        torch.manual_seed(4)
        assert draw_seed(None) == first
        assert second != first
