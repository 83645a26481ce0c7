"""The arithmetic of posteriors in torch: what the compiled loops are held against."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

#: Numbers in one block. Large enough that torch shares a block between threads, small enough that
#: a handful of float32 blocks fit the cache of one core.
BLOCK_SIZE = 98_304


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

    log_sigma: float
    sigma2: float
    loc2: float


class LangevinStep(NamedTuple):
    """The numbers of a step of Langevin dynamics; see `langevin`."""

    rate: float
    pull: float
    noise: float
    memory: float
    damping: float


def softplus(rho: Tensor) -> Tensor:
    """log(1 + exp(rho)).

    Half the time of torch's, which also guards against rho > 88: a standard deviation that no
    training survives.
    """
    return rho.exp().log1p()


def inverse_softplus(sigma: Tensor) -> Tensor:
    """The rho for which softplus(rho) = sigma."""
    return sigma + torch.log(-torch.expm1(-sigma))


def draw(
    loc: Tensor,
    rho: Tensor,
    eps: Tensor,
    sign: int,
    floor: float,
    group: tuple[int, ...] | None,
) -> tuple[Tensor, Sums, Tensor | None]:
    """loc + sign * sigma * eps with sigma = softplus(rho) + floor; sums; squares of groups.

    `group` names the axes over which the squared weights are summed (and kept), None for no sums.
    """
    weight = torch.empty_like(loc)
    sums, squares = [], []
    for rows in row_blocks(weight):
        sigma = softplus(rho[rows]).add_(floor)
        torch.addcmul(loc[rows], sigma, eps[rows], value=sign, out=weight[rows])
        if group is not None:
            squares.append(weight[rows].square().sum(group, keepdim=True))
        pair = [sigma.square().sum(), loc[rows].square().sum()]
        sums.append(torch.stack([sigma.log_().sum(), *pair]).double())
    totals = Sums(*torch.stack(sums).sum(0).tolist())
    if group is None:
        return weight, totals, None
    return weight, totals, torch.stack(squares).sum(0) if 0 in group else torch.cat(squares)


def gradient(
    by_weight: Tensor,
    rho: Tensor,
    eps: Tensor,
    sign: int,
    floor: float,
    kl_weight: float,
    factor: Tensor,
    base: Tensor | None,
    exact: bool,
) -> tuple[Tensor, Tensor, float]:
    """The gradients by loc and by rho, from that by the weight, and their squared length.

    The prior's score is factor * base (factor alone where base is None); base is the weight, or,
    if the prior's expectation is `exact`, the loc. See `core.posterior` for the formulas.
    """
    by_loc, by_rho = torch.empty_like(rho), torch.empty_like(rho)
    for rows in row_blocks(rho):
        part = factor if factor.shape[0] == 1 else factor[rows]
        score = part if base is None else part * base[rows]
        torch.sub(by_weight[rows], score, alpha=kl_weight, out=by_loc[rows])
        exp_rho = rho[rows].exp()
        sigma = exp_rho.log1p().add_(floor)
        slope = exp_rho.div_(exp_rho + 1)  # softplus'(rho)
        by_sigma = by_rho[rows]
        torch.mul(by_weight[rows] if exact else by_loc[rows], eps[rows], out=by_sigma).mul_(sign)
        if exact:
            by_sigma.sub_(part * sigma, alpha=kl_weight)
        by_sigma.sub_(sigma.reciprocal_(), alpha=kl_weight).mul_(slope)
    return by_loc, by_rho, sum_of_squares(by_loc) + sum_of_squares(by_rho)


def sharpen(
    phi: Tensor, g: Tensor, eta: Tensor, eps: Tensor, scale: float, sigma0: float
) -> tuple[Tensor, float]:
    """phi - shift + sigma0 * eps with shift = scale * eta * g, and the sum of shift^2."""
    theta = torch.empty_like(phi)
    squares = 0.0
    for rows in row_blocks(phi):
        shift = (eta[rows] * g[rows]).mul_(scale)
        torch.sub(phi[rows], shift, out=theta[rows]).add_(eps[rows], alpha=sigma0)
        squares += sum_of_squares(shift)
    return theta, squares


def sharpen_gradient(
    by_theta: Tensor, g: Tensor, eta: Tensor, scale: float, kl_scale: float
) -> Tensor:
    """The gradient by eta, scale * g * (kl_scale * shift - by_theta). See `core.sharpening`.

    The shift is as much g's as eta's: with the two exchanged, this is the gradient by g.
    """
    by_eta = torch.empty_like(eta)
    for rows in row_blocks(eta):
        slope = g[rows] * scale
        by_shift = (slope * eta[rows]).mul_(kl_scale).sub_(by_theta[rows])
        torch.mul(slope, by_shift, out=by_eta[rows])
    return by_eta


def langevin(
    theta: Tensor, g: Tensor, squares: Tensor | None, step: LangevinStep, eps: Tensor | None
) -> None:
    """In place, theta -= rate * G * (g + pull * theta) - noise * sqrt(G) * eps.

    G is 1; or, where there are `squares`, 1 / (damping + sqrt(squares)), after squares, the running
    mean of g^2, has moved by 1 - memory towards g^2.
    """
    for rows in row_blocks(theta):
        drift = torch.add(g[rows], theta[rows], alpha=step.pull)
        spread = None if eps is None else eps[rows] * step.noise
        if squares is not None:
            part = squares[rows]
            part.mul_(step.memory).addcmul_(g[rows], g[rows], value=1 - step.memory)
            scale = part.sqrt().add_(step.damping).reciprocal_()
            drift.mul_(scale)
            if spread is not None:
                spread.mul_(scale.sqrt_())
        theta[rows].sub_(drift, alpha=step.rate)
        if spread is not None:
            theta[rows].add_(spread)


def sum_of_squares(tensor: Tensor) -> float:
    """The sum of the squares of all numbers."""
    flat = tensor.flatten()
    # In blocks, because the rounding of one long float32 sum would be felt.
    parts = [torch.dot(flat[block], flat[block]).double() for block in row_blocks(flat)]
    return torch.stack(parts).sum().item() if parts else 0.0
