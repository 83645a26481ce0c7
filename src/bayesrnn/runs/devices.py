"""Where a run computes."""

import torch

from bayesrnn.errors import ConfigError


def available_devices() -> list[str]:
    """The devices of this machine."""
    mps = torch.backends.mps.is_available()
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": mps}
    return [name for name, is_there in there.items() if is_there]


def choose_device(name: str) -> torch.device:
    """The device by name, or the best one there is for `auto`."""
    there = available_devices()
    if name == "auto":
        name = "cuda" if "cuda" in there else "cpu"
    if name not in there:
        raise ConfigError(
            f"--device is {name}, which this machine does not have; it has: {', '.join(there)}"
        )
    return torch.device(name)
