"""The arithmetic of posteriors in torch: what the compiled loops are held against."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from bayesrnn.core.kernel.philox import BLOCK, normal_numbers

#: What is summed up: a number, or a tensor with one where torch.compile looks on.
Number = float | Tensor

#: Numbers in one block. Large enough that torch shares a block between threads, small enough that
#: a handful of float32 blocks fit the cache of one core.
BLOCK_SIZE = 98_304

#: Random numbers that are made at a time.
_NOISE_BLOCK = 512 * BLOCK


def row_blocks(tensor: Tensor, size: int | None = None) -> Iterator[slice]:
    """Slices along the first axis that cover `tensor` in blocks of about `size` numbers.

    Without a size, it is BLOCK_SIZE.

    Only on the CPU is there a cache to stay in; elsewhere one block is the whole tensor.
    """
    rows = tensor.shape[0]
    size = BLOCK_SIZE if size is None else size
    if tensor.device.type != "cpu":
        size = max(size, tensor.numel())
    per_block = max(1, size * rows // max(tensor.numel(), 1))
    for start in range(0, rows, per_block):
        yield slice(start, min(start + per_block, rows))


class Sums(NamedTuple):
    """Sums over a tensor: of log sigma, of sigma^2 and of loc^2."""

    log_sigma: Number
    sigma2: Number
    loc2: Number


class Squares(NamedTuple):
    """The squared lengths of the gradients by loc and by rho."""

    by_loc: Number
    by_rho: Number


class LangevinStep(NamedTuple):
    """The numbers of a step of Langevin dynamics; see `langevin`."""

    rate: float
    pull: float
    noise: float
    alpha: float
    eps: float


def softplus(rho: Tensor) -> Tensor:
    """log(1 + exp(rho)).

    Half the time of torch's, which also guards against rho > 88: a standard deviation that no
    training survives. Far below zero it stops at a number that can still be divided by.
    """
    return rho.clamp_min(_lowest(rho.dtype)).exp().log1p()


def wide(tensor: Tensor) -> Tensor:
    """As float32 if it has 16 bits: sums of many such numbers would lose most of their digits."""
    return tensor.to(wide_type(tensor))


def wide_type(tensor: Tensor) -> torch.dtype:
    """That of sums over a tensor: its own, and at least float32."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _lowest(dtype: torch.dtype) -> float:
    """A rho whose exp is still a normal number."""
    return -700.0 if dtype is torch.float64 else -87.0


def _log_sigma(rho: Tensor, sigma: Tensor, floor: float) -> Tensor:
    """log(sigma): far below zero, softplus(rho) is exp(rho), whose logarithm is known."""
    return torch.where(rho < -40, rho, sigma.log()) if floor == 0 else sigma.log()


def inverse_softplus(sigma: Tensor) -> Tensor:
    """The rho for which softplus(rho) = sigma."""
    return sigma + torch.log(-torch.expm1(-sigma))


def draw(
    loc: Tensor,
    rho: Tensor,
    eps: Tensor,
    sign: int,
    floor: float,
    group: tuple[int, ...],
    expected: bool,
) -> tuple[Tensor, Sums, Tensor | None]:
    """loc + sign * sigma * eps with sigma = softplus(rho) + floor; sums; squares of groups.

    `group` names the axes over which the squared weights are summed (and kept): their expectation,
    loc^2 + sigma^2, if `expected`. None instead of the squares where they were not summed.
    """
    if wide(loc) is not loc:
        weight, totals, of_groups = draw(
            wide(loc), wide(rho), wide(eps), sign, floor, group, expected
        )
        return weight.to(loc.dtype), totals, of_groups
    weight = torch.empty_like(loc)
    sums, squares = [], []
    for rows in row_blocks(weight):
        sigma = softplus(rho[rows]).add_(floor)
        torch.addcmul(loc[rows], sigma, eps[rows], value=sign, out=weight[rows])
        if group:
            values = loc[rows].square() + sigma.square() if expected else weight[rows].square()
            squares.append(values.sum(group, keepdim=True))
        pair = [sigma.square().sum(), loc[rows].square().sum()]
        sums.append(torch.stack([_log_sigma(rho[rows], sigma, floor).sum(), *pair]).double())
    totals = Sums(*torch.stack(sums).sum(0).tolist())
    if not group:
        return weight, totals, None
    return weight, totals, torch.stack(squares).sum(0) if 0 in group else torch.cat(squares)


def gradient(
    by_weight: Tensor,
    rho: Tensor,
    eps: Tensor,
    sign: int,
    floor: float,
    by_kl: Tensor,
    factor: Tensor,
    base: Tensor | None,
    exact: bool,
) -> tuple[Tensor, Tensor, Squares]:
    """The gradients by loc and by rho, from those by weight and KL, and their squared lengths.

    The prior's score is factor * base (factor alone where base is None); base is the weight, or,
    if the prior's expectation is `exact`, the loc. See `core.posterior` for the formulas.
    """
    if wide(rho) is not rho:
        given = (by_weight, rho, eps, factor)
        by_weight, rho, eps, factor = map(wide, given)
        base = None if base is None else wide(base)
        by_loc, by_rho, lengths = gradient(
            by_weight, rho, eps, sign, floor, by_kl, factor, base, exact
        )
        return by_loc.to(given[1].dtype), by_rho.to(given[1].dtype), lengths
    by_loc, by_rho = torch.empty_like(rho), torch.empty_like(rho)
    kl_weight = by_kl.item()
    for rows in row_blocks(rho):
        part = factor if factor.shape[0] == 1 else factor[rows]
        score = part if base is None else part * base[rows]
        torch.sub(by_weight[rows], score, alpha=kl_weight, out=by_loc[rows])
        exp_rho = rho[rows].clamp_min(_lowest(rho.dtype)).exp_()
        sigma = exp_rho.log1p().add_(floor)
        slope = exp_rho.div_(exp_rho + 1)  # softplus'(rho)
        by_sigma = by_rho[rows]
        torch.mul(by_weight[rows] if exact else by_loc[rows], eps[rows], out=by_sigma).mul_(sign)
        if exact:
            by_sigma.sub_(part * sigma, alpha=kl_weight)
        by_sigma.sub_(sigma.reciprocal_(), alpha=kl_weight).mul_(slope)
    return by_loc, by_rho, Squares(sum_of_squares(by_loc), sum_of_squares(by_rho))


def normal(out: Tensor, seed: int, stream: int) -> float:
    """Fill a tensor with the standard normal numbers of a seed; gives the sum of squares."""
    flat = (
        out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
    )
    flat = flat.view(-1)
    for start in range(0, flat.numel(), _NOISE_BLOCK):
        part = flat[start : start + _NOISE_BLOCK]
        part.copy_(normal_numbers(seed, stream, start, part.numel(), out.device))
    if not out.is_contiguous():
        out.copy_(flat.view(out.shape))
    return sum_of_squares(flat)


def sharpen(
    phi: Tensor,
    g: Tensor,
    eta: Tensor,
    scale: float,
    sigma0: float,
    seed: int,
    stream: int,
) -> tuple[Tensor, float]:
    """phi - shift + sigma0 * eps with shift = scale * eta * g, and the sum of shift^2.

    eps is what `normal` gives for seed and stream.
    """
    theta, eps = torch.empty_like(phi), torch.empty_like(phi)
    normal(eps, seed, stream)
    squares = 0.0
    for rows in row_blocks(phi):
        shift = (eta[rows] * g[rows]).mul_(scale)
        torch.sub(phi[rows], shift, out=theta[rows]).add_(eps[rows], alpha=sigma0)
        squares += sum_of_squares(shift)
    return theta, squares


def sharpen_gradient(
    by_theta: Tensor, g: Tensor, eta: Tensor, scale: float, by_kl: Tensor, variance: float
) -> Tensor:
    """The gradient by eta, scale * g * (by_kl / variance * shift - by_theta).

    See `core.sharpening`.
    The shift is as much g's as eta's: with the two exchanged, this is the gradient by g.
    """
    by_eta, kl_scale = torch.empty_like(eta), by_kl.item() / variance
    for rows in row_blocks(eta):
        slope = g[rows] * scale
        by_shift = (slope * eta[rows]).mul_(kl_scale).sub_(by_theta[rows])
        torch.mul(slope, by_shift, out=by_eta[rows])
    return by_eta


def langevin(
    theta: Tensor,
    g: Tensor,
    squares: Tensor | None,
    step: LangevinStep,
    seed: int,
    stream: int,
) -> None:
    """In place, theta -= rate * G * (g + pull * theta) - noise * sqrt(G) * z.

    G is 1; or, where there are `squares`, 1 / (eps + sqrt(squares)), after squares, the running
    mean of g^2, has moved by 1 - alpha towards g^2. z is what `normal` gives for seed and stream.
    """
    z = torch.empty_like(theta) if step.noise else None
    if z is not None:
        normal(z, seed, stream)
    for rows in row_blocks(theta):
        drift = torch.add(g[rows], theta[rows], alpha=step.pull)
        spread = None if z is None else z[rows] * step.noise
        if squares is not None:
            part = squares[rows]
            part.mul_(step.alpha).addcmul_(g[rows], g[rows], value=1 - step.alpha)
            scale = part.sqrt().add_(step.eps).reciprocal_()
            drift.mul_(scale)
            if spread is not None:
                spread.mul_(scale.sqrt_())
        theta[rows].sub_(drift, alpha=step.rate)
        if spread is not None:
            theta[rows].add_(spread)


def pull(loc: Tensor, rho: Tensor, floor: float, rate: float, factor: Tensor) -> None:
    """In place, loc /= 1 - rate * factor * sigma^2; the factor is that of `gradient`."""
    for rows in row_blocks(rho):
        part = factor if factor.shape[0] == 1 else factor[rows]
        variance = (softplus(rho[rows]) + floor).square_()
        loc[rows].div_(1 - variance * (part * rate))


def width_step(rho: Tensor, g: Tensor, rate: float, most: float) -> None:
    """In place, rho -= rate * g, each number by `most` at most."""
    rho.sub_((g * rate).clamp_(-most, most))


def sum_of_squares(tensor: Tensor) -> float:
    """The sum of the squares of all numbers."""
    flat = tensor.flatten()
    # In blocks, because the rounding of one long float32 sum would be felt.
    parts = [torch.dot(flat[block], flat[block]).double() for block in row_blocks(flat)]
    return torch.stack(parts).sum().item() if parts else 0.0
