"""export: a network as a model for programs that know nothing of Bayes."""

import copy
import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bayesrnn.core.bayesian import Bayesian
from bayesrnn.core.functional import copy_with
from bayesrnn.durable import write_durably
from bayesrnn.errors import ConfigError, MissingExtraError
from bayesrnn.methods.trained import Trained


def export(
    net: nn.Module | Trained,
    path: str | Path,
    example_inputs: Tensor | tuple[Any, ...],
    *,
    draw: int | None = None,
    dynamic_shapes: Any = None,
) -> None:
    """Write the mean network, or one that is drawn, as an ordinary model in evaluation mode.

        br.export(net, "model.onnx", x)                 # by torch.onnx; needs the extra `onnx`
        br.export(net, "model.pt2", x, draw=7)          # for torch.export.load

    A few files with different draws, predicted with in turn, are the posterior elsewhere.

    net: a `Bayesian`, what `fit` returns, or any module.
    example_inputs: what the network is called with, a tensor or a tuple. The model takes inputs of
        these shapes, and recurrent layers are unrolled over as many steps.
    draw: the seed of the draw; None for the mean weights, which an ensemble does not have.
    dynamic_shapes: which axes may differ from the example's, as `torch.export` takes it, such as
        ({0: torch.export.Dim("batch")},).
    """
    path = Path(path)
    if path.suffix not in (".onnx", ".pt2"):
        raise ConfigError(f"the path is {path}; its ending has to be .onnx or .pt2")
    inputs = (example_inputs,) if isinstance(example_inputs, Tensor) else tuple(example_inputs)
    module = ordinary(net, draw).eval().requires_grad_(False)
    write = _onnx if path.suffix == ".onnx" else _pt2
    try:
        written = write(module, inputs, dynamic_shapes)
    except (TypeError, RuntimeError) as error:
        if not _reads_packed(module, inputs):
            raise
        raise ConfigError(
            f"this {type(module).__name__} packs sequences, which torch cannot export; export one "
            "with the same weights that reads sequences of one length as they are"
        ) from error
    write_durably(path, written)


@torch.no_grad()
def ordinary(net: nn.Module | Trained, draw: int | None = None) -> nn.Module:
    """A module of its own with the mean weights, or those of the draw of a seed."""
    if isinstance(net, Trained):
        if draw is None:
            _require_one(net)
            return copy.deepcopy(net.method.mean_module(net.net))
        return net.method.drawn_module(net.net, draw)
    if isinstance(net, Bayesian):
        if draw is None:
            return copy.deepcopy(net.module)
        return copy_with(net.module, net.sample(noise=net.noise(draw)))
    if draw is not None:
        raise ConfigError(
            f"this {type(net).__name__} has weights and no distribution of them, so there is no "
            "draw; leave draw out, or wrap it in Bayesian"
        )
    return copy.deepcopy(net)


def _require_one(net: Trained) -> None:
    """Refuse networks of which none is the mean of all."""
    members = net.method.members(net.net)
    if members > 1 and not net.method.has_mean:
        raise ConfigError(
            f"the method {net.method.name} has {members} networks and no mean of their weights; "
            f"export each of them: draw=0 to draw={members - 1}"
        )


@torch.no_grad()
def _reads_packed(module: nn.Module, inputs: tuple[Any, ...]) -> bool:
    found = []
    for layer in module.modules():
        if isinstance(layer, nn.RNNBase):
            layer.register_forward_pre_hook(lambda layer, given: found.append(given[0]))
    module(*inputs)
    return any(isinstance(given, PackedSequence) for given in found)


def _pt2(module: nn.Module, inputs: tuple[Any, ...], dynamic_shapes: Any) -> bytes:
    with _quiet("torch.export"):
        program = torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes)
    file = io.BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def _onnx(module: nn.Module, inputs: tuple[Any, ...], dynamic_shapes: Any) -> bytes:
    for needed in ("onnx", "onnxscript"):
        if find_spec(needed) is None:
            raise MissingExtraError(
                "export to ONNX needs an extra: pip install 'bayesrnn[onnx]'; without it there is "
                "the ending .pt2"
            )
    with _quiet("torch.onnx", "torch.export"):
        program = torch.onnx.export(
            module, inputs, dynamo=True, verbose=False, dynamic_shapes=dynamic_shapes
        )
    assert program is not None
    written: bytes = program.model_proto.SerializeToString()
    return written


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Inside the block torch's exporters keep to themselves what their caller cannot mend.

    That is which packages are not there, and that recurrent layers keep a list of their weights.
    """
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The tensor attribute", UserWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
