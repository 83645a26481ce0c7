"""What the tests of compact files share: how to look into them and how to forge them."""

import json

import safetensors
import safetensors.numpy
import torch

from bayesrnn.compression.manifest import manifest_text


def bits(tensor):
    return tensor.contiguous().view(-1).view(torch.int32)


def as_matrix(tensor):
    return tensor.flatten(1) if tensor.dim() > 1 else tensor.reshape(1, -1)


def payload(path):
    """The arrays of a file and the content of its manifest, without the reader that is tested."""
    with safetensors.safe_open(path, "np") as file:
        assert list(file.metadata()) == ["bayesrnn"]
        content = json.loads(file.metadata()["bayesrnn"])["content"]
        return {name: file.get_tensor(name) for name in file.keys()}, content  # noqa: SIM118


def check_values(found, masked, kind):
    assert (found.dtype, found.shape) == (torch.float32, masked.shape)
    if kind == "float32":
        assert torch.equal(bits(found), bits(masked))
    elif kind == "float16":
        assert torch.equal(bits(found), bits(masked.half().float()))
    else:
        rows, errors = as_matrix(masked), as_matrix((found - masked).abs())
        if rows.numel():
            half_a_step = rows.abs().amax(1, keepdim=True).double() / 127 / 2
            # The scale is rounded too, so that 127 of it miss the largest entry by half a step at
            # most; below the normal numbers, to steps of 1e-45.
            assert bool((errors <= half_a_step * (1 + 1 / 127) + 127 * 1.5e-45).all())


def forge(path, change):
    """Change what a file says and give it the right checksums."""
    arrays, content = payload(path)
    change(content, arrays)
    path.write_bytes(safetensors.numpy.save(arrays, {"bayesrnn": manifest_text(content)}))
