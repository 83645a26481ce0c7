"""The inner loops in C, where there is a compiled library.

Without one, or with BAYESRNN_KERNEL=off, `core.kernel.reference` does the same work with torch
operations, on the same random numbers.

C sees nothing but addresses, so it may only be given tensors that have their numbers in memory.
While torch.compile looks on, tensors have none yet: there each loop is a custom operator of torch,
`torch.ops.bayesrnn.<name>`, which runs when the compiled code does.
"""

import ctypes
import functools
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayesrnn.core.kernel.library import load_library
from bayesrnn.core.kernel.reference import LangevinStep, Number, Squares, Sums
from bayesrnn.errors import ConfigError

#: The arguments and results of the functions in kernel.c, as torch writes them; ! marks what they
#: write to. The first argument, how many numbers there are to work on, becomes that of threads.
_SCHEMAS = {
    "draw": "(SymInt work, SymInt rows, SymInt columns, Tensor loc, Tensor rho, Tensor eps, "
    "float sign, float floor, bool expected, Tensor(a!) weight, Tensor(b!) sums, "
    "Tensor(c!)? squares, SymInt row_stride, SymInt column_stride) -> ()",
    "gradient": "(SymInt work, SymInt rows, SymInt columns, Tensor by_weight, Tensor rho, "
    "Tensor eps, float sign, float floor, Tensor by_kl, Tensor factor, SymInt row_stride, "
    "SymInt column_stride, Tensor? base, bool exact, Tensor(a!) by_loc, Tensor(b!) by_rho, "
    "Tensor(c!) squares) -> ()",
    "normal": "(SymInt work, SymInt size, SymInt seed, SymInt stream, Tensor(a!) out) -> Tensor",
    "sample": "(SymInt work, SymInt rows, SymInt columns, Tensor? places, SymInt fixed, "
    "Tensor loc, Tensor rho, float floor, float scale, float sign, SymInt seed, SymInt stream, "
    "Tensor(a!) out, Tensor(b!)? mirrored) -> ()",
    "sum_of_squares": "(SymInt work, SymInt size, Tensor x) -> Tensor",
    "sharpen": "(SymInt work, SymInt size, Tensor phi, Tensor g, Tensor eta, float scale, "
    "float sigma0, SymInt seed, SymInt stream, Tensor(a!) theta) -> Tensor",
    "sharpen_gradient": "(SymInt work, SymInt size, Tensor by_theta, Tensor g, Tensor eta, "
    "float scale, Tensor by_kl, float variance, Tensor(a!) by_eta) -> ()",
    "langevin": "(SymInt work, SymInt size, Tensor(a!) theta, Tensor g, Tensor(b!)? squares, "
    "float rate, float pull, float noise, float alpha, float damping, SymInt seed, "
    "SymInt stream) -> ()",
    "pull": "(SymInt work, SymInt rows, SymInt columns, Tensor(a!) loc, Tensor rho, float floor, "
    "float rate, Tensor factor, SymInt row_stride, SymInt column_stride) -> ()",
    "width_step": "(SymInt work, SymInt size, Tensor(a!) rho, Tensor g, float rate, float most) "
    "-> ()",
    "average": "(SymInt work, SymInt rows, SymInt columns, Tensor logits, float share, "
    "Tensor(a!) mean, Tensor(b!) entropy) -> ()",
    "sparse_product": "(SymInt work, SymInt rows, SymInt width, SymInt batch, Tensor starts, "
    "Tensor columns, bool wide, Tensor values, Tensor x, Tensor? bias, bool add, "
    "Tensor(a!) out) -> ()",
}

#: Below this many numbers, waking threads costs more than it gains.
_WORTH_A_THREAD = 1 << 15

_C_TYPES = {"SymInt": ctypes.c_int64, "bool": ctypes.c_int64, "float": ctypes.c_double}


#: What functions that give 0 for success say when they give something else.
_FAILURES: dict[str, Callable[[Sequence[Any]], Exception]] = {
    "sparse_product": lambda values: MemoryError(
        f"no memory for {values[3]} x {values[2]} numbers"
    ),
}


def _checked(failure: Callable[[Sequence[Any]], Exception]) -> Callable[..., None]:
    def check(result: int, function: Any, arguments: Sequence[Any]) -> None:
        if result:
            raise failure(arguments)

    return check


class Loops(ABC):
    """`core.kernel.reference` in C, for contiguous float32 tensors on the CPU."""

    @abstractmethod
    def _run(self, name: str, work: int, *arguments: Any) -> Any:
        """Call a function of kernel.c."""

    @abstractmethod
    def _numbers(self, tensor: Tensor) -> Sequence[Number]:
        """The numbers of a vector."""

    def draw(
        self,
        loc: Tensor,
        rho: Tensor,
        eps: Tensor,
        sign: int,
        floor: float,
        group: tuple[int, ...],
        expected: bool,
    ) -> tuple[Tensor, Sums, Tensor | None]:
        """See `core.kernel.reference.draw`."""
        weight = torch.empty_like(loc)
        sums = torch.empty(3, dtype=torch.double)
        squares, strides = None, None
        shape = [1 if axis in group else size for axis, size in enumerate(loc.shape)]
        if shape != list(loc.shape):
            strides = _strides(shape, loc.shape)
            squares = None if strides is None else torch.zeros(shape)
        rows, columns = _matrix(loc)
        self._run(
            "draw", loc.numel(), rows, columns, loc, rho, eps, float(sign), floor, expected,
            weight, sums, squares, *(strides or (0, 0)),
        )  # fmt: skip
        return weight, Sums(*self._numbers(sums)), squares

    def gradient(
        self,
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
        """See `core.kernel.reference.gradient`."""
        rows, columns = _matrix(rho)
        strides = _strides(factor.shape, rho.shape)
        if strides is None:
            factor, strides = factor.expand_as(rho), (columns, 1)
        by_weight, factor = by_weight.contiguous(), factor.contiguous()
        by_loc, by_rho = torch.empty_like(rho), torch.empty_like(rho)
        squares = torch.empty(2, dtype=torch.double)
        self._run(
            "gradient", rho.numel(), rows, columns, by_weight, rho, eps, float(sign), floor, by_kl,
            factor, *strides, base, exact, by_loc, by_rho, squares,
        )  # fmt: skip
        return by_loc, by_rho, Squares(*self._numbers(squares))

    def sharpen(
        self,
        phi: Tensor,
        g: Tensor,
        eta: Tensor,
        scale: float,
        sigma0: float,
        seed: int,
        stream: int,
    ) -> tuple[Tensor, Number]:
        """See `core.kernel.reference.sharpen`."""
        theta, size = torch.empty_like(phi), phi.numel()
        squares = self._run(
            "sharpen", size, size, phi, g, eta, scale, sigma0, seed, stream, theta
        )  # fmt: skip
        return theta, squares

    def sharpen_gradient(
        self, by_theta: Tensor, g: Tensor, eta: Tensor, scale: float, by_kl: Tensor, variance: float
    ) -> Tensor:
        """See `core.kernel.reference.sharpen_gradient`."""
        by_theta, by_eta, size = by_theta.contiguous(), torch.empty_like(eta), eta.numel()
        self._run(
            "sharpen_gradient", size, size, by_theta, g, eta, scale, by_kl, variance, by_eta
        )  # fmt: skip
        return by_eta

    def langevin(
        self,
        theta: Tensor,
        g: Tensor,
        squares: Tensor | None,
        step: LangevinStep,
        seed: int,
        stream: int,
    ) -> None:
        """See `core.kernel.reference.langevin`."""
        size = theta.numel()
        self._run("langevin", size, size, theta, g, squares, *step, seed, stream)

    def pull(self, loc: Tensor, rho: Tensor, floor: float, rate: float, factor: Tensor) -> None:
        """See `core.kernel.reference.pull`."""
        rows, columns = _matrix(rho)
        strides = _strides(factor.shape, rho.shape)
        if strides is None:
            factor, strides = factor.expand_as(rho), (columns, 1)
        work, factor = rho.numel(), factor.contiguous()
        self._run("pull", work, rows, columns, loc, rho, floor, rate, factor, *strides)

    def width_step(self, rho: Tensor, g: Tensor, rate: float, most: float) -> None:
        """See `core.kernel.reference.width_step`."""
        self._run("width_step", rho.numel(), rho.numel(), rho, g, rate, most)

    def normal(self, out: Tensor, seed: int, stream: int) -> Number:
        """See `core.kernel.reference.normal`."""
        result: Number = self._run("normal", out.numel(), out.numel(), seed, stream, out)
        return result

    def sample(
        self,
        loc: Tensor,
        rho: Tensor,
        floor: float,
        noise: tuple[int, int],
        scale: float,
        sign: int,
        out: Tensor,
        mirrored: Tensor | None = None,
        places: Tensor | None = None,
        fixed: int = -1,
    ) -> None:
        """Write loc + sign * sigma * scale * eps to `out`, and with the other sign to `mirrored`.

        noise: seed and stream of eps, the numbers that `normal` gives; they are never stored.
        places: the rows that are wanted (int64), if not all.
        fixed: a row that is its loc, and has no noise; -1: there is none.
        """
        columns = _matrix(loc)[1] if loc.dim() else 1
        self._run(
            "sample", out.numel(), out.numel() // columns, columns, places, fixed, loc, rho, floor,
            scale, float(sign), *noise, out, mirrored,
        )  # fmt: skip

    def average(self, logits: Tensor, share: float, mean: Tensor, entropy: Tensor) -> None:
        """Move `mean` and `entropy` by `share` towards the softmax of logits and its entropy."""
        rows, columns = entropy.numel(), logits.shape[-1]
        self._run("average", logits.numel(), rows, columns, logits, share, mean, entropy)

    def sparse_product(
        self,
        starts: Tensor,
        columns: Tensor,
        values: Tensor,
        x: Tensor,
        out: Tensor,
        bias: Tensor | None = None,
        add: bool = False,
    ) -> None:
        """`out = x @ W.T + bias`, or `out += ...`, for a sparse matrix W kept by rows.

        starts (int64) says where each row begins and ends in columns (uint16 or int32) and
        values. x is [batch, columns of W], out [batch, rows of W].
        """
        batch, width = x.shape
        self._run(
            "sparse_product", values.numel() * batch, out.shape[1], width, batch, starts, columns,
            columns.dtype is torch.int32, values, x, bias, add, out,
        )  # fmt: skip

    def sum_of_squares(self, tensor: Tensor) -> Number:
        """See `core.kernel.reference.sum_of_squares`."""
        result: Number = self._run("sum_of_squares", tensor.numel(), tensor.numel(), tensor)
        return result


class Kernel(Loops):
    """The functions of kernel.c, called at once."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._functions = {}
        for name, schema in _SCHEMAS.items():
            function = getattr(library, name)
            arguments, result = schema[1:].split(") -> ")
            types = (argument.split()[0] for argument in arguments.split(", "))
            function.argtypes = [_C_TYPES.get(kind, ctypes.c_void_p) for kind in types]
            function.restype = ctypes.c_double if result == "Tensor" else None
            if name in _FAILURES:
                function.restype, function.errcheck = ctypes.c_int64, _checked(_FAILURES[name])
            self._functions[name] = function

    def _run(self, name: str, work: int, *arguments: Any) -> Any:
        threads = torch.get_num_threads() if work > _WORTH_A_THREAD else 1
        plain = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
        return self._functions[name](threads, *plain)

    def _numbers(self, tensor: Tensor) -> Sequence[float]:
        numbers: list[float] = tensor.tolist()
        return numbers


class _Traced(Loops):
    """The same as operators of torch, for code that torch.compile looks at.

    Sums are tensors here: the numbers are not known before the compiled code runs.
    """

    def _run(self, name: str, work: int, *arguments: Any) -> Any:
        return getattr(torch.ops.bayesrnn, name)(work, *arguments)

    def _numbers(self, tensor: Tensor) -> Sequence[Tensor]:
        return tensor.unbind()


def _register(name: str, schema: str, kernel: Kernel) -> None:
    gives_a_number = schema.endswith("-> Tensor")

    def run(*arguments: Any) -> Tensor | None:
        result = kernel._run(name, *arguments)
        return torch.tensor(result, dtype=torch.double) if gives_a_number else None

    def without_running(*arguments: Any) -> Tensor | None:
        return torch.empty((), dtype=torch.double) if gives_a_number else None

    arguments = schema[1:].split(") -> ")[0].split(", ")
    written = [argument.split()[1] for argument in arguments if "!" in argument]
    operator = torch.library.custom_op(
        f"bayesrnn::{name}", run, mutates_args=written, schema=schema, device_types="cpu"
    )
    operator.register_fake(without_running)


_TRACED = _Traced()
#: Whether the loops are there, for code that torch.compile looks at: it cannot load them.
_is_loaded = False
_PLAIN = {Tensor, nn.Parameter}


def kernel_for(tensors: Sequence[Tensor]) -> Loops | None:
    """The loops in C, if they are there and can work on these tensors.

    Refuses tensors without numbers of their own in memory, such as the shards of a network that is
    spread over several processes.
    """
    if torch.compiler.is_compiling():
        return _TRACED if _is_loaded and _fit(tensors) else None
    if _PLAIN.issuperset(map(type, tensors)):
        return load_kernel() if _fit(tensors) else None
    for tensor in tensors:
        if type(tensor) not in _PLAIN and tensor.numel() and not _has_numbers(tensor):
            raise ConfigError(
                f"these weights are of the type {type(tensor).__name__}, without numbers of their "
                "own in memory; bayesrnn needs each tensor whole. Instead of sharding a network "
                "(fully_shard, tensor parallelism), give each process a copy of it, as "
                "DistributedDataParallel does"
            )
    return None


def _has_numbers(tensor: Tensor) -> bool:
    """Whether a tensor of some other type has an address."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of, or refuses, the question itself
            return tensor.data_ptr() != 0
    except RuntimeError:
        return False


def _fit(tensors: Sequence[Tensor]) -> bool:
    return all(
        t.dtype is torch.float32 and t.device.type == "cpu" and t.is_contiguous() and t.numel()
        for t in tensors
    )


@functools.cache
def load_kernel() -> Kernel | None:
    """The compiled kernel; None where it is turned off or cannot be compiled."""
    global _is_loaded
    loops = load_library().loops
    if loops is None:
        return None
    kernel = Kernel(loops)
    for name, schema in _SCHEMAS.items():
        _register(name, schema, kernel)
    _is_loaded = True
    return kernel


def _matrix(tensor: Tensor) -> tuple[int, int]:
    """A tensor as rows along its first axis; a vector is one row."""
    if tensor.dim() == 1:
        return 1, tensor.shape[0]
    return tensor.shape[0], tensor[0].numel()


def _strides(shape: Sequence[int], full: Sequence[int]) -> tuple[int, int] | None:
    """Row and column strides of a tensor that broadcasts to `full`, if two strides can say it."""
    if math.prod(shape) == 1:
        return 0, 0
    if len(full) == 1:
        return 0, 1
    if list(shape[1:]) == list(full[1:]):
        return (0 if shape[0] == 1 else math.prod(full[1:])), 1
    if math.prod(shape[1:]) == 1:
        return 1, 0
    return None
