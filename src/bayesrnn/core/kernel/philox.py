"""Standard normal numbers from a seed, as kernel.c makes them, with torch operations.

The random words are those of Philox4x32-10 (Salmon et al. 2011), the same everywhere. The transform
to normal numbers (Box and Muller) follows the compiled code step by step. Where that multiplies and
adds in one step (`fused` in kernel.c), so does `_fused`: the numbers are the same to the last bit,
whether the processor has FMA or not.
"""

import torch
from torch import Tensor

#: Counters that lie side by side: each gives four numbers, LANES apart.
LANES = 64
#: Numbers that belong together: those of LANES counters.
BLOCK = 4 * LANES

_MASK = 0xFFFFFFFF


def philox(first: int, count: int, stream: int, key: int, device: torch.device) -> list[Tensor]:
    """Four random 32-bit words for each counter (first, stream), (first + 1, stream), ..."""
    counters = torch.arange(first, first + count, device=device)
    a, b = counters & _MASK, counters >> 32
    c, d = torch.full_like(counters, stream & _MASK), torch.full_like(counters, stream >> 32)
    k0, k1 = key & _MASK, key >> 32
    for _ in range(10):
        # Products wrap around as in C; of the sign that a shift draws in, the mask keeps nothing.
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, c = ((q >> 32) & _MASK) ^ b ^ k0, ((p >> 32) & _MASK) ^ d ^ k1
        b, d = q & _MASK, p & _MASK
        k0, k1 = (k0 + 0x9E3779B9) & _MASK, (k1 + 0xBB67AE85) & _MASK
    return [a, b, c, d]


def normal_numbers(seed: int, stream: int, start: int, count: int, device: torch.device) -> Tensor:
    """`count` numbers of a seed and stream from `start` on, a multiple of BLOCK, in float32."""
    if device.type == "mps":  # it has no double precision, which the fused steps need
        return normal_numbers(seed, stream, start, count, torch.device("cpu")).to(device)
    blocks = -(-count // BLOCK)
    words = philox(start // 4, blocks * LANES, stream, seed, device)
    pairs = [_box_muller(words[pair], words[pair + 1]) for pair in (0, 2)]
    lanes = [numbers.view(blocks, LANES) for pair in pairs for numbers in pair]
    return torch.stack(lanes, 1).view(-1)[:count]


def _box_muller(length_word: Tensor, angle_word: Tensor) -> tuple[Tensor, Tensor]:
    u = ((length_word >> 1).float() + 0.5) * 2.0**-31
    # Rounded from double precision: torch's float32 root is not always the nearest number.
    length = (_log(u) * -2.0).double().sqrt().float()
    angle = torch.where(angle_word >= 2**31, angle_word - 2**32, angle_word)
    sine, cosine = _sincos_turn(angle.float() * 2.0**-32)
    return length * cosine, length * sine


def _log(x: Tensor) -> Tensor:
    bits = x.view(torch.int32)
    k = (bits - 0x3F3504F3) >> 23
    m = (bits - (k << 23)).view(torch.float32)
    t = (m - 1.0) / (m + 1.0)
    s = t * t
    p = _polynomial(s, 0.2222222, 0.2857143, 0.4, 0.6666667)
    return _fused(k.float(), _single(0.69314718), 2.0 * t + t * s * p)


def _sincos_turn(u: Tensor) -> tuple[Tensor, Tensor]:
    """sin and cos of 2 pi u for u in [-1/2, 1/2): a quarter wave, the rest by symmetry."""
    quarter = (u * 4.0 + 0.5).floor()
    x = (u - quarter * 0.25) * _single(6.28318531)
    s = x * x
    sine = x * _polynomial(s, 2.7557319e-6, -1.9841270e-4, 8.3333333e-3, -1.6666667e-1, 1.0)
    cosine = _polynomial(s, 2.4801587e-5, -1.3888889e-3, 4.1666667e-2, -0.5, 1.0)
    q = quarter.int() & 3
    odd = (q & 1).bool()
    one, other = torch.where(odd, cosine, sine), torch.where(odd, sine, cosine)
    return (
        torch.where((q & 2).bool(), -one, one),
        torch.where(((q + 1) & 2).bool(), -other, other),
    )


def _polynomial(s: Tensor, first: float, *others: float) -> Tensor:
    p = torch.full_like(s, first)
    for coefficient in others:
        p = _fused(p, s, _single(coefficient))
    return p


def _fused(a: Tensor, b: Tensor | float, c: Tensor | float) -> Tensor:
    """a * b + c in float32, as `fused` in kernel.c has it without FMA.

    The product is exact in double precision; the sum is rounded to double and then to float. For
    every input of `_box_muller` that is the float that FMA gives, but not for any a, b, c.
    """
    b, c = (v.double() if isinstance(v, Tensor) else v for v in (b, c))
    return (a.double() * b + c).float()


def _single(value: float) -> float:
    """A constant as float32 has it."""
    return torch.tensor(value, dtype=torch.float32).item()
