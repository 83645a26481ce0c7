"""Options that several commands have."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bayesrnn.data.files import SPLITS
from bayesrnn.errors import ConfigError
from bayesrnn.options import REQUIRED, CheckedOptions, option

DEVICES: Final = ("auto", "cpu", "cuda", "mps")

_SAMPLES = (
    "draws of the network whose predictions are averaged and compared; 0: the mean weights alone, "
    "without model uncertainty"
)


def samples_option(help: str = _SAMPLES) -> Any:
    """How many draws of the network are made."""
    return option(20, help, ge=0, zero="the mean network")


def seed_option(help: str = "seed of the draws") -> Any:
    """Where randomness starts from."""
    return option(1, help, ge=0)


def html_option(shows: str) -> Any:
    """A page."""
    return option(None, f"also write a page with {shows}; it needs no other file", metavar="FILE")


def require_one_text(text: str | None, file: Path | None) -> None:
    """Refuse two texts, or none."""
    if (text is None) == (file is None):
        given = "neither" if text is None else "both"
        raise ConfigError(f'{given} of --text and --file were given; give one: --text "..."')


@dataclass(frozen=True, kw_only=True)
class MachineOptions(CheckedOptions):
    """Where to compute."""

    device: str = option("auto", "where to compute", choices=DEVICES)
    threads: int | None = option(None, "processor threads (default: torch's choice)", gt=0)


@dataclass(frozen=True, kw_only=True)
class NetworkOptions(MachineOptions):
    """Which weights of a run, and where to compute with them."""

    checkpoint: str = option("best", "best, last or a step")


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(CheckedOptions):
    """Whether predictions are scaled as `bayesrnn calibrate` found best."""

    uncalibrated: bool = option(
        False,
        "predict with the noise and the temperature of training, not with those that were fitted "
        "to validation data (`bayesrnn calibrate`)",
    )


@dataclass(frozen=True, kw_only=True)
class DataOptions(CheckedOptions):
    """Where the data of a run are now."""

    data: tuple[str, ...] = option(
        (),
        "where the data that the run was trained on are now, if they were moved (default: where "
        "its config.toml says)",
        metavar="PATH ...",
    )
    data_dir: Path | None = option(
        None,
        "folder with the data sets that have names, if it was moved (default: as in training)",
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions(NetworkOptions):
    """A run."""

    run: Path = option(REQUIRED, "folder of a run", positional=True)


@dataclass(frozen=True, kw_only=True)
class RunOrFileOptions(NetworkOptions):
    """A run, or a pruned network."""

    run: Path = option(REQUIRED, "folder of a run, or a file of prune --out", positional=True)


@dataclass(frozen=True, kw_only=True)
class JsonOptions(CheckedOptions):
    """A result that can be written as JSON."""

    json: Path | None = option(None, "also write the result to this file as JSON; - for the screen")

    def show(self, text: str) -> None:
        """Print what is for the screen, unless JSON goes there."""
        if str(self.json) != "-":
            print(text)


@dataclass(frozen=True, kw_only=True)
class ReportOptions(NetworkOptions, JsonOptions):
    """Several runs, and where to write what is found of them."""

    runs: tuple[Path, ...] = option((), "folders of runs, or files of prune --out", positional=True)
    html: Path | None = html_option("all metrics and charts")


@dataclass(frozen=True, kw_only=True)
class MeasurementOptions(DataOptions):
    """The options of every measurement of uncertainty."""

    split: str = option("test", "which part of the data is regular", choices=SPLITS)
    bootstrap: int = option(1000, "resamples behind the intervals; 0: none", ge=0)
    seed: int = seed_option("seed of draws, shifts and resamples")


@dataclass(frozen=True, kw_only=True)
class UncertaintyOptions(MeasurementOptions, CalibrationOptions):
    """The same, of predictions that `bayesrnn calibrate` scales."""
