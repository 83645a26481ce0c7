"""WidthSGD: steps of the posterior's widths, on a scale of their own.

With a minibatch's summed loss, nll + kl / N for N minibatches in an epoch, the gradient by the
logarithm of a sigma is sigma eps g + (lambda sigma^2 - 1) / N, where g is the gradient by the
weight and lambda the prior's precision. Where the width is right, its mean is 0, and a width that
is a little off is pulled back by 2 / N of its distance. So at a rate of 1 widths come home within
an epoch, whatever the corpus; but g is that of one minibatch, whose noise gives sigma eps g a
standard deviation of about 1 / sqrt(N). A larger rate would follow that noise.

On a loss that is a mean over B sequences the same rate is B: B times what suits the means under
plain gradient descent. At the means' own rate, widths stay where they started.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.compiled import kernel_for
from bayesrnn.core.norms import total_norm
from bayesrnn.errors import ConfigError

#: The longest step of a single number, in limits.
_LONGEST = 10.0


class WidthSGD(torch.optim.Optimizer):
    """Gradient descent for rho, with a limit on each step.

        means = torch.optim.Adam(net.mean_parameters())
        widths = br.WidthSGD(net.rho.parameters(), lr=sequences)  # of a loss that is their mean

    The step of a tensor is scaled down to a root mean square of `limit` as a whole. (A limit on
    each number instead would cut the large noise, and with it the likelihood's share, more often
    than the prior's share, which has none: widths would end too wide.) A single number moves by at
    most ten times as much: where most weights are asleep, the few others have far longer steps.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float = 1.0,
        limit: float = 0.02,
    ) -> None:
        if not limit > 0:
            raise ConfigError(f"the limit on steps of rho is {limit:g}; it has to be above 0")
        super().__init__(params, {"lr": lr, "limit": limit})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step along the gradients that are there."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for rho in group["params"]:
                if rho.grad is not None:
                    rate = _rate(rho.grad, group["lr"], group["limit"])
                    loops = kernel_for((rho, rho.grad)) or reference
                    loops.width_step(rho, rho.grad, rate, _LONGEST * group["limit"])
        return loss


def _rate(gradient: Tensor, lr: float, limit: float) -> float:
    """The rate at which the step is at most `limit` in root mean square."""
    length = total_norm([gradient])
    return min(lr, limit * math.sqrt(gradient.numel()) / length) if length else lr
