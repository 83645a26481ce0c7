import json
import math
import struct
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bayesrnn.errors import CheckpointError
from bayesrnn.training.state import JSON, pack, unpack

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.int64, torch.bool]
shapes = st.lists(st.integers(0, 3), max_size=3)
tensors = st.builds(
    lambda shape, dtype: torch.ones(shape).to(dtype), shapes, st.sampled_from(DTYPES)
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | tensors
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=20,
)


def round_trip(tree: Any) -> Any:
    """Through real JSON text and copies of the tensors, as on disk."""
    parts, value = pack(tree)
    parts = {name: part.clone() for name, part in parts.items()}
    return unpack(parts, json.loads(json.dumps(value, allow_nan=False)))


def same(a: Any, b: Any) -> bool:
    """Equal in type, order and bits."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@unhurried
@given(trees)
def test_round_trip(tree: Any) -> None:
    assert same(round_trip(tree), tree)


@unhurried
@given(trees)
def test_tensors_can_be_left_out(tree: Any) -> None:
    def without(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: without(item) for key, item in node.items()}
        if isinstance(node, list | tuple):
            return type(node)(without(item) for item in node)
        return None if isinstance(node, Tensor) else node

    assert same(unpack(None, pack(tree)[1]), without(tree))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.Adam, {"betas": (0.8, 0.95), "amsgrad": True}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    ],
)
def test_optimiser_goes_on_bit_for_bit(kind: Any, options: dict[str, Any]) -> None:
    def step(net: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        optimiser.zero_grad()
        net(torch.linspace(-1, 1, 12).reshape(4, 3)).square().sum().backward()
        optimiser.step()

    torch.manual_seed(0)
    net, other = nn.Linear(3, 2), nn.Linear(3, 2)
    optimiser, second = kind(net.parameters(), **options), kind(other.parameters(), **options)
    step(net, optimiser)
    state = {"net": net.state_dict(), "optimiser": optimiser.state_dict()}
    assert same(round_trip(state)["optimiser"], state["optimiser"])
    restored = round_trip(state)
    other.load_state_dict(restored["net"])
    second.load_state_dict(restored["optimiser"])
    step(net, optimiser)
    step(other, second)
    assert torch.equal(net.weight, other.weight)


def test_random_states() -> None:
    generator = torch.Generator().manual_seed(3)
    numbers = np.random.default_rng(3)
    state = round_trip({"torch": generator.get_state(), "numpy": numbers.bit_generator.state})
    other, others = torch.Generator(), np.random.default_rng(0)
    other.set_state(state["torch"])
    others.bit_generator.state = state["numpy"]
    assert torch.equal(torch.rand(5, generator=generator), torch.rand(5, generator=other))
    assert numbers.random() == others.random()


def test_ordered_dict_views_and_parameters() -> None:
    weight = nn.Parameter(torch.arange(6.0).reshape(2, 3))
    back = round_trip(OrderedDict(b=weight, a=weight.t()))
    assert list(back) == ["b", "a"]
    assert type(back) is dict
    assert not back["b"].requires_grad
    assert torch.equal(back["a"], weight.detach().t())


Pair = namedtuple("Pair", "x y")
cycle: list[Any] = []
cycle.append(cycle)


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        ({"a": [1, {2, 3}]}, r"state\['a'\]\[1\] is a builtins.set"),
        ({"optimiser": {0: object()}}, r"state\['optimiser'\]\[0\]"),
        ((1, np.float64(2)), r"state\[1\] is a numpy.float64"),
        ([Pair(1, 2)], r"state\[0\]"),
        ({True: 1}, "the key True"),
        ({(1, 2): 1}, r"the key \(1, 2\)"),
        (b"bytes", "state is a builtins.bytes"),
        (1 << 5000, "bits"),
        (cycle, "nested"),
        ({"s": torch.ones(2).to_sparse()}, r"state\['s'\]"),
        ({"m": torch.ones(2, device="meta")}, r"state\['m'\]"),
        ([torch.ones(2, dtype=torch.complex128)], r"state\[0\]"),
    ],
)
def test_unsupported_is_named(tree: Any, place: str) -> None:
    with pytest.raises(TypeError, match=place):
        pack(tree)


deep: JSON = 1
for _ in range(1000):
    deep = [deep]


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": 1},
        {"tuple": 3},
        {"tuple": [], "dict": []},
        {"dict": {"a": 1}},
        {"dict": [["a"]]},
        {"dict": [[True, 1]]},
        {"dict": [[1.5, 1]]},
        {"dict": [["a", 1], ["a", 2]]},
        {"dict": ["ab"]},
        {"float": "1.0"},
        {"float": ["nan"]},
        {"tensor": "absent"},
        {"tensor": 0},
        {"tensor": ["0"]},
        math.nan,
        deep,
    ],
)
def test_foreign_json_is_refused(value: JSON) -> None:
    with pytest.raises(CheckpointError, match="state"):
        unpack({"0": torch.ones(1)}, value)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dict", "tuple", "float", "tensor", "x"]), inner, max_size=2
        )
    ),
    max_leaves=10,
)


@unhurried
@given(json_values)
def test_any_json_is_read_or_refused(value: Any) -> None:
    try:
        tree = unpack({"0": torch.ones(1)}, value)
    except CheckpointError:
        return
    assert same(round_trip(tree), tree)
