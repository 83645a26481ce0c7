"""Where a run computes."""

import torch

from bayesrnn.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """The device by name, or the best one there is for `auto`."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.mps.is_available()}
    if name == "auto":
        name = "cuda" if there["cuda"] else "cpu"
    if not there[name]:
        have = ", ".join(device for device, is_there in there.items() if is_there)
        raise ConfigError(f"--device is {name}, which this machine does not have; it has: {have}")
    return torch.device(name)
