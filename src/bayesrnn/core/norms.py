"""The length of a set of tensors, such as all gradients together."""

import math
from collections.abc import Sequence

from torch import Tensor

from bayesrnn.core.kernel import reference
from bayesrnn.core.kernel.compiled import kernel_for


def total_norm(tensors: Sequence[Tensor]) -> float:
    """The Euclidean norm of all numbers of all tensors."""
    loops = kernel_for(tensors) or reference
    return math.sqrt(sum(loops.sum_of_squares(tensor) for tensor in tensors))
