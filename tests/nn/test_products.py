"""Products by oneDNN, against those of torch in double precision."""

import pytest
import torch
from torch.nn import functional as F

from bayesrnn.nn import products
from bayesrnn.nn.products import Repeated, linear, product


def normal(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator)


#: More rows than columns, fewer, and one of each.
SHAPES = [(6, 33, 130), (1, 7, 5), (40, 1, 3), (3, 65, 1)]


@pytest.fixture(params=["oneDNN", "torch"])
def way(request, monkeypatch):
    """Both ways to multiply."""
    found = products._usable([normal(2, 2)])
    if request.param == "oneDNN" and not found:
        pytest.skip("this torch has no oneDNN")
    if request.param == "torch":
        monkeypatch.setattr(products, "_usable", lambda tensors: False)
    return request.param


@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear_and_its_gradients(way, rows, inputs, outputs, has_bias):
    given = [normal(2, rows, inputs), normal(outputs, inputs)] + [normal(outputs)] * has_bias
    by_made = normal(2, rows, outputs)
    found, expected = [
        [tensor.to(dtype, copy=True).requires_grad_() for tensor in given]
        for dtype in (torch.float32, torch.float64)
    ]
    made = linear(*found, *[None] * (not has_bias))
    wanted = F.linear(*expected)
    torch.testing.assert_close(made, wanted.float())
    made.backward(by_made)
    wanted.backward(by_made.double())
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.grad, other.grad.float(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES)
def test_products_without_gradients(way, rows, inputs, outputs):
    x, weight, to = normal(rows, inputs), normal(outputs, inputs), normal(rows, outputs)
    expected = (x.double() @ weight.double().t()).float()
    torch.testing.assert_close(product(x, weight), expected)
    torch.testing.assert_close(product(x.t().contiguous().t(), weight), expected)
    for count in (1, 20):
        repeated, out = Repeated(weight.t().contiguous().t(), rows, count), torch.empty_like(to)
        torch.testing.assert_close(repeated(x), expected)
        repeated.added(to, x, out=out)
        torch.testing.assert_close(out, to + expected)


def test_frozen_matrix_gets_no_gradient(way):
    x, weight = normal(4, 3).requires_grad_(), normal(5, 3)
    linear(x, weight, None).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(4, 3))
    assert weight.grad is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_numbers_are_left_to_torch(dtype):
    x, weight = normal(4, 3).to(dtype), normal(5, 3).to(dtype)
    assert torch.equal(linear(x, weight, None), F.linear(x, weight))
    assert torch.equal(Repeated(weight, 4, 20)(x), x @ weight.t())


def test_nothing_is_multiplied():
    assert linear(normal(0, 3), normal(5, 3), None).shape == (0, 5)
    assert Repeated(normal(5, 3), 0, 20)(normal(0, 3)).shape == (0, 5)
