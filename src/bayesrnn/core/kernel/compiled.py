"""The inner loops in C, compiled on first use where a C compiler is found.

Without a compiler, or with BAYESRNN_KERNEL=off, `core.arithmetic` does the same work with torch
operations. The compiled file is kept in the user's cache folder.
"""

import ctypes
import functools
import hashlib
import math
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from bayesrnn.core.kernel.reference import LangevinStep, Sums

_FLAGS = ("-O3", "-funroll-loops", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
_NATIVE = ("-mcpu=native",) if platform.machine() in ("arm64", "aarch64") else ("-march=native",)

#: Below this many numbers, waking threads costs more than it gains.
_WORTH_A_THREAD = 1 << 15

_Pointer, _Int, _Word, _Float = ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64, ctypes.c_float


class Kernel:
    """`core.arithmetic` in C, for contiguous float32 tensors on the CPU."""

    def __init__(self, library: ctypes.CDLL) -> None:
        n, i, p, f = ctypes.c_int32, _Int, _Pointer, _Float
        self._draw, self._gradient, self._normal = library.draw, library.gradient, library.normal
        self._draw.argtypes = (n, i, i, p, p, p, f, f, p, p, p, i, i)
        self._gradient.argtypes = (n, i, i, p, p, p, f, f, f, p, i, i, p, n, p, p)
        self._normal.argtypes = (n, i, _Word, _Word, p)
        self._sum_of_squares = library.sum_of_squares
        self._sum_of_squares.argtypes = (n, i, p)
        self._sharpen, self._sharpen_gradient = library.sharpen, library.sharpen_gradient
        self._sharpen.argtypes = (n, i, p, p, p, f, f, _Word, _Word, p)
        self._sharpen_gradient.argtypes = (n, i, p, p, p, f, f, p)
        self._langevin = library.langevin
        self._langevin.argtypes = (n, i, p, p, p, f, f, f, f, f, _Word, _Word)
        self._average = library.average
        self._average.argtypes = (n, i, i, p, f, p, p)
        self._sparse_product = library.sparse_product
        self._sparse_product.argtypes = (n, i, i, i, p, p, n, p, p, p, n, p)
        self._sparse_product.restype = n
        for function in (self._draw, self._sharpen_gradient, self._langevin, self._average):
            function.restype = None
        for function in (self._gradient, self._normal, self._sum_of_squares, self._sharpen):
            function.restype = ctypes.c_double

    def draw(
        self,
        loc: Tensor,
        rho: Tensor,
        eps: Tensor,
        sign: int,
        floor: float,
        group: tuple[int, ...] | None,
    ) -> tuple[Tensor, Sums, Tensor | None]:
        """See `core.arithmetic.draw`."""
        weight = torch.empty_like(loc)
        sums = torch.empty(3, dtype=torch.double)
        squares, strides = None, None
        if group is not None:
            shape = [1 if axis in group else size for axis, size in enumerate(loc.shape)]
            squares, strides = torch.zeros(shape), _strides(shape, loc.shape)
        self._draw(
            *(_threads(loc), *_matrix(loc), loc.data_ptr(), rho.data_ptr(), eps.data_ptr()),
            *(sign, floor, weight.data_ptr(), sums.data_ptr()),
            None if squares is None or strides is None else squares.data_ptr(),
            *(strides or (0, 0)),
        )
        if group is not None and strides is None:
            squares = weight.square().sum(group, keepdim=True)
        return weight, Sums(*sums.tolist()), squares

    def gradient(
        self,
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
        """See `core.arithmetic.gradient`."""
        strides = _strides(factor.shape, rho.shape)
        if strides is None:
            factor, strides = factor.expand_as(rho), (_matrix(rho)[1], 1)
        by_weight, factor = by_weight.contiguous(), factor.contiguous()
        by_loc, by_rho = torch.empty_like(rho), torch.empty_like(rho)
        squares = self._gradient(
            *(_threads(rho), *_matrix(rho), by_weight.data_ptr(), rho.data_ptr(), eps.data_ptr()),
            *(sign, floor, kl_weight, factor.data_ptr(), *strides),
            *(None if base is None else base.data_ptr(), exact),
            *(by_loc.data_ptr(), by_rho.data_ptr()),
        )
        return by_loc, by_rho, float(squares)

    def sharpen(
        self,
        phi: Tensor,
        g: Tensor,
        eta: Tensor,
        scale: float,
        sigma0: float,
        seed: int,
        stream: int,
    ) -> tuple[Tensor, float]:
        """See `core.arithmetic.sharpen`; the noise is what `normal` gives for seed and stream."""
        theta = torch.empty_like(phi)
        squares = self._sharpen(
            *(_threads(phi), phi.numel(), phi.data_ptr(), g.data_ptr(), eta.data_ptr()),
            *(scale, sigma0, seed, stream, theta.data_ptr()),
        )
        return theta, float(squares)

    def sharpen_gradient(
        self, by_theta: Tensor, g: Tensor, eta: Tensor, scale: float, kl_scale: float
    ) -> Tensor:
        """See `core.arithmetic.sharpen_gradient`."""
        by_theta, by_eta = by_theta.contiguous(), torch.empty_like(eta)
        self._sharpen_gradient(
            *(_threads(eta), eta.numel(), by_theta.data_ptr(), g.data_ptr(), eta.data_ptr()),
            *(scale, kl_scale, by_eta.data_ptr()),
        )
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
        """See `core.arithmetic.langevin`; the noise is what `normal` gives for seed and stream."""
        self._langevin(
            *(_threads(theta), theta.numel(), theta.data_ptr(), g.data_ptr()),
            *(None if squares is None else squares.data_ptr(), *step, seed, stream),
        )

    def normal(self, out: Tensor, seed: int, stream: int) -> float:
        """Fill a tensor with the standard normal numbers of a seed; gives the sum of squares."""
        return float(self._normal(_threads(out), out.numel(), seed, stream, out.data_ptr()))

    def average(self, logits: Tensor, share: float, mean: Tensor, entropy: Tensor) -> None:
        """Move `mean` and `entropy` by `share` towards the softmax of logits and its entropy."""
        rows, columns = entropy.numel(), logits.shape[-1]
        self._average(
            *(_threads(logits), rows, columns, logits.data_ptr(), share),
            *(mean.data_ptr(), entropy.data_ptr()),
        )

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
        work = values.numel() * batch
        failed = self._sparse_product(
            *(torch.get_num_threads() if work > _WORTH_A_THREAD else 1, out.shape[1], width, batch),
            *(starts.data_ptr(), columns.data_ptr(), columns.dtype is torch.int32),
            *(values.data_ptr(), x.data_ptr(), None if bias is None else bias.data_ptr()),
            *(add, out.data_ptr()),
        )
        if failed:
            raise MemoryError(f"no memory for {batch} x {width} numbers")

    def sum_of_squares(self, tensor: Tensor) -> float:
        """See `core.arithmetic.sum_of_squares`."""
        return float(self._sum_of_squares(_threads(tensor), tensor.numel(), tensor.data_ptr()))


def kernel_for(tensors: Sequence[Tensor]) -> Kernel | None:
    """The kernel, if it is there and can work on these tensors."""
    fit = all(
        t.dtype is torch.float32 and t.device.type == "cpu" and t.is_contiguous() and t.numel()
        for t in tensors
    )
    return load_kernel() if fit else None


@functools.cache
def load_kernel() -> Kernel | None:
    """The compiled kernel; None where it is turned off or cannot be compiled."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if os.environ.get("BAYESRNN_KERNEL", "on").lower() in ("off", "0") or compiler is None:
        return None
    source = resources.files("bayesrnn.core.kernel").joinpath("kernel.c").read_bytes()
    try:
        key = hashlib.sha256(b"\0".join((source, compiler.encode(), _machine()))).hexdigest()[:20]
        library = _cache_folder() / f"kernel-{key}.so"
        if not library.exists():
            _compile(compiler, source, library)
        return Kernel(ctypes.CDLL(str(library)))
    except (OSError, subprocess.SubprocessError, AttributeError):
        return None  # slower, not wrong


def _compile(compiler: str, source: bytes, library: Path) -> None:
    """Compile with OpenMP for threads, else without.

    The OpenMP library is not linked: its functions are found in the one that torch has loaded, so
    that both share their threads.
    """
    library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        file, made = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
        file.write_bytes(source)

        def run(*arguments: str) -> None:
            command = [compiler, *_FLAGS, *_NATIVE, *arguments]
            subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=folder)

        try:
            run("-fopenmp", "-c", "kernel.c", "-o", "kernel.o")
            run("-shared", "kernel.o", "-o", "kernel.so", "-lm")
            ctypes.CDLL(str(made))
        except (OSError, subprocess.SubprocessError):
            run("-fopenmp-simd", "-shared", "kernel.c", "-o", "kernel.so", "-lm")
        made.replace(library)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "bayesrnn"


def _machine() -> bytes:
    """What the compiled code depends on: a home folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().split(b"\n")
    except OSError:
        return platform.processor().encode()
    wanted = {line for line in lines if line.startswith((b"model name", b"flags"))}
    return b"\n".join(sorted(wanted))


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


def _threads(tensor: Tensor) -> int:
    return torch.get_num_threads() if tensor.numel() > _WORTH_A_THREAD else 1
