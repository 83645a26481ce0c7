"""Make the features of the user's own images, once, for captioners to learn from."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bayesrnn.errors import ConfigError, CorpusError, Interrupted
from bayesrnn.options import option
from bayesrnn.progress import say
from bayesrnn.report.text import counted
from bayesrnn.runs.arguments import MachineOptions
from bayesrnn.runs.devices import choose_device
from bayesrnn.runs.output import require_writable
from bayesrnn.tasks.captions.caption_results import LeftOut
from bayesrnn.tasks.captions.features import FEATURES_FILE, read_features, write_features
from bayesrnn.tasks.captions.image_network import load_image_network
from bayesrnn.tasks.captions.looking import look_at, require_some
from bayesrnn.tasks.captions.photographs import image_files
from bayesrnn.training.process import stop_request

#: After so many images the file is written: half a minute's work on one core.
_SAVED_EACH = 512


@dataclass(frozen=True, kw_only=True)
class FeaturesOptions(MachineOptions):
    """The images, and the file of their features."""

    images: tuple[Path, ...] = option((), "image files, or folders of them", positional=True)
    out: Path | None = option(
        None,
        "the .npz file to write; images that it has already are not looked at again (default: "
        f"{FEATURES_FILE} in the folder, if one is given)",
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.images:
            raise ConfigError("no images were given; give files, or a folder")
        if self.out is not None and self.out.suffix != ".npz":
            raise ConfigError(f"--out is {self.out}; its ending has to be .npz")


def make_features(options: FeaturesOptions) -> int:
    """Write the features of images, by their names; how many of them could not be read."""
    files = image_files(options.images)
    path = _place(options)
    _require_one_of_each_name(files)
    require_writable(path)
    names, features = list[str](), list[Tensor]()
    if path.exists():
        before = read_features(path)
        names, features = list(before.names), [before.features]
    known = set(names)
    new = [file for file in files if file.name not in known]
    left_out = list[LeftOut]()
    if new:
        network = load_image_network().to(device := choose_device(options.device))
        saved = len(names)
        with stop_request() as request:
            for few in look_at(new, network, device, left_out, alone=len(files) == 1):
                names += [file.name for file in few.files]
                features.append(few.features.cpu())
                if len(names) - saved >= _SAVED_EACH or request.signal_number is not None:
                    write_features(path, names, torch.cat(features))
                    saved = len(names)
                if request.signal_number is not None:
                    raise Interrupted(
                        request.signal_number,
                        f"stopped with the features of {counted(saved, 'image')} in {path}; the "
                        "same command goes on",
                    )
        require_some(names, files)
        write_features(path, names, torch.cat(features))
    there = len(files) - len(new)
    beside = f", of which {there:,} were there already" if there else ""
    say(f"{path} has the features of {counted(len(names), 'image')}{beside}")
    return len(left_out)


def _place(options: FeaturesOptions) -> Path:
    if options.out is not None:
        return options.out
    (*others, folder) = options.images
    if others or not folder.is_dir():
        raise ConfigError("say which file to write: --out features.npz")
    return folder / FEATURES_FILE


def _require_one_of_each_name(files: Sequence[Path]) -> None:
    """Features go by the names of files alone, as captions do."""
    first, times = Counter(file.name for file in files).most_common(1)[0]
    if times > 1:
        same = " and ".join(str(file) for file in files if file.name == first)
        raise CorpusError(
            f"several images have the name {first}: {same}; their features would go by one name, "
            "so rename one, or make two files of features"
        )
