"""The random numbers: against published ones, formulas in double precision, and one another."""

import math

import numpy as np
import pytest
import torch

from bayesrnn.core.kernel import philox, reference
from bayesrnn.core.kernel.compiled import load_kernel

CPU = torch.device("cpu")
needs_kernel = pytest.mark.skipif(load_kernel() is None, reason="no C compiler here")


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


def test_words_of_torch_operations_are_those_of_the_reference():
    for first, stream, key in [(0, 0, 0), (2**32 - 2, 2**40 + 7, 2**63 - 2), (12345, 3, 2**33)]:
        words = torch.stack(philox.philox(first, 5, stream, key, CPU), 1)
        assert words.tolist() == [philox_words(first + n, stream, key) for n in range(5)]


@pytest.mark.parametrize("loops", ["torch", pytest.param("compiled", marks=needs_kernel)])
def test_noise_is_box_and_muller_on_philox(loops):
    loops = reference if loops == "torch" else load_kernel()
    seed, stream, size = 2**63 - 5, 11, 700
    found = torch.empty(size)
    squares = loops.normal(found, seed, stream)
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


@needs_kernel
def test_with_and_without_a_compiler_the_numbers_are_the_same():
    for size, seed, stream in [(1, 0, 0), (255, 7, 1), (300_001, 2**63 - 2, 2**40)]:
        compiled, torches = torch.empty(size), torch.empty(size)
        squares = load_kernel().normal(compiled, seed, stream)
        assert reference.normal(torches, seed, stream) == pytest.approx(squares, rel=1e-6)
        assert torch.equal(compiled, torches)


def test_type_and_layout_change_no_number():
    plain = torch.empty(6, 50)
    reference.normal(plain, 9, 2)
    for like in (plain.double(), torch.empty(50, 6).t(), torch.empty(6, 50, dtype=torch.bfloat16)):
        numbers = torch.empty_like(like)
        reference.normal(numbers, 9, 2)
        assert torch.equal(numbers, plain.to(like.dtype))
        assert numbers.stride() == like.stride()
