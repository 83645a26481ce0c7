"""Nested Python state as named tensors and a JSON value, and back, without pickle.

In the JSON value, `null`, booleans, integers, finite floats, strings and lists stand for
themselves. Everything else is an object with one key, its kind:

    {"dict": [[key, value], ...]}    keys are strings or integers, and keep their order
    {"tuple": [value, ...]}
    {"float": "inf" | "-inf" | "nan"}
    {"tensor": name}
"""

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from bayesrnn.errors import CheckpointError

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

_MAX_DEPTH = 64
_MAX_INT_BITS = 4096
_SPECIAL_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
# fmt: off
_DTYPES = {
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
}
# fmt: on


def pack(tree: Any) -> tuple[dict[str, Tensor], JSON]:
    """Split nested state into its tensors, by name, and a JSON value that refers to them.

    CPU tensors are not copied: write them out before they change.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _pack(tree, tensors, "state", 0)


def unpack(tensors: Mapping[str, Tensor] | None, value: JSON) -> Any:
    """Rebuild the state that `pack` took apart.

    With `tensors=None` the tensors are left out: `None` stands in the place of each.
    """
    return _unpack(value, tensors, "state", 0)


def storable(tensor: Tensor, place: str) -> Tensor:
    """The tensor as a file can hold it: dense, on the CPU, contiguous, without its history."""
    if tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in _DTYPES:
        kind = f"{tensor.dtype} tensor, layout {tensor.layout}, device {tensor.device}"
        raise TypeError(f"{place} is a {kind}; only dense tensors of a usual dtype can be saved")
    return tensor.detach().cpu().contiguous()


def _pack(node: Any, tensors: dict[str, Tensor], place: str, depth: int) -> JSON:
    if depth > _MAX_DEPTH:
        raise TypeError(f"{place} is nested more than {_MAX_DEPTH} deep; it cannot be saved")
    if isinstance(node, Tensor):
        name = str(len(tensors))
        tensors[name] = storable(node, place)
        return {"tensor": name}
    # Exact types only: a subclass (a named tuple, a numpy float) would come back as another type.
    kind = type(node)
    if kind is int and node.bit_length() > _MAX_INT_BITS:
        raise TypeError(f"{place} is an int of more than {_MAX_INT_BITS} bits; it cannot be saved")
    if node is None or kind in (bool, int, str):
        plain: JSON = node
        return plain
    if kind is float:
        return float(node) if math.isfinite(node) else {"float": str(node)}
    if kind in (list, tuple):
        items = [_pack(x, tensors, f"{place}[{i}]", depth + 1) for i, x in enumerate(node)]
        return items if kind is list else {"tuple": items}
    if kind in (dict, OrderedDict):
        pairs: list[JSON] = []
        for key, item in node.items():
            if type(key) not in (str, int):
                raise TypeError(f"{place} has the key {key!r}; only str and int keys can be saved")
            pairs.append([key, _pack(item, tensors, f"{place}[{key!r}]", depth + 1)])
        return {"dict": pairs}
    raise TypeError(
        f"{place} is a {kind.__module__}.{kind.__qualname__}, which cannot be saved; use dict, "
        "list, tuple, None, bool, int, float, str or torch.Tensor"
    )


def _unpack(node: Any, tensors: Mapping[str, Tensor] | None, place: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise CheckpointError(f"{place} is nested more than {_MAX_DEPTH} deep")
    if node is None or isinstance(node, bool | int | str):
        return node
    if isinstance(node, float) and math.isfinite(node):
        return node
    if isinstance(node, list):
        return [_unpack(x, tensors, f"{place}[{i}]", depth + 1) for i, x in enumerate(node)]
    if isinstance(node, dict) and len(node) == 1:
        ((kind, content),) = node.items()
        if kind == "tuple" and isinstance(content, list):
            return tuple(_unpack(content, tensors, place, depth))
        if kind == "dict" and isinstance(content, list):
            return _unpack_dict(content, tensors, place, depth)
        if kind == "float" and isinstance(content, str) and content in _SPECIAL_FLOATS:
            return _SPECIAL_FLOATS[content]
        if kind == "tensor" and isinstance(content, str):
            if tensors is None:
                return None
            if content in tensors:
                return tensors[content]
            raise CheckpointError(f"{place} refers to the tensor {content!r}, which is not there")
    raise CheckpointError(f"{place} holds something that bayesrnn does not write")


def _unpack_dict(
    pairs: list[Any], tensors: Mapping[str, Tensor] | None, place: str, depth: int
) -> dict[str | int, Any]:
    result: dict[str | int, Any] = {}
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and type(pair[0]) in (str, int)):
            raise CheckpointError(f"{place} holds a dict entry that is not a key and a value")
        key, item = pair
        if key in result:
            raise CheckpointError(f"{place} holds the key {key!r} twice")
        result[key] = _unpack(item, tensors, f"{place}[{key!r}]", depth + 1)
    return result
