"""What calibrating a run found, kept in its folder as `calibration.json`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from bayesrnn.errors import RunError
from bayesrnn.report.text import counted
from bayesrnn.training.run_directory import RunDirectory
from bayesrnn.uncertainty.fitting import FittedScaling
from bayesrnn.uncertainty.scaling import Scaling

CALIBRATION_FILE: Final = "calibration.json"

#: Nats by which draws have to be better than the mean weights to be worth their time.
WORTH = 5e-4


@dataclass(frozen=True)
class Calibration:
    """Noise and temperatures that were fitted to validation data, and what they changed.

    step: of the checkpoint that they belong to.
    samples, seed: of the draws that were averaged.
    unit: what was predicted, in the singular.
    whole: whether all validation data were fitted to; of earlier versions, not known.
    """

    step: int
    samples: int
    seed: int
    unit: str
    fitted: FittedScaling
    whole: bool = False

    @property
    def scaling(self) -> Scaling:
        """The fitted numbers themselves."""
        return self.fitted.scaling

    @property
    def best_samples(self) -> int:
        """The inference that predicts the validation data best: so many draws; 0: the mean."""
        drawn = self.fitted.draws_nll_fitted
        better = drawn is not None and drawn < self.fitted.mean_nll_fitted - WORTH
        return self.fitted.draws if better else 0

    def for_one_network(self) -> "Calibration":
        """What holds for the mean weights alone, of which no draws can be made."""
        temperature = self.scaling.mean_temperature
        scaling = Scaling(temperature=temperature, mean_temperature=temperature)
        fitted = replace(
            self.fitted, scaling=scaling, draws=0, draws_nll=None, draws_nll_fitted=None
        )
        return replace(self, fitted=fitted)

    def as_json(self) -> dict[str, Any]:
        """The values for a JSON file; which inference is the best is written out."""
        values = asdict(self)
        fitted = values.pop("fitted")
        best = "draws" if self.best_samples else "mean"
        return {**values, **fitted.pop("scaling"), **fitted, "best": best, "fitted_on": "valid"}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Calibration":
        """The calibration of a file; `KeyError`, `TypeError` or `ValueError` if it is none."""
        numbers = ("noise", "temperature", "mean_temperature")
        of_draws = {name: values[name] for name in ("draws_nll", "draws_nll_fitted")}
        fitted = FittedScaling(
            scaling=Scaling(*(_positive(values[name]) for name in numbers)),
            draws=int(values["draws"]),
            predictions=int(values["predictions"]),
            mean_nll=float(values["mean_nll"]),
            mean_nll_fitted=float(values["mean_nll_fitted"]),
            **{name: float(nll) for name, nll in of_draws.items() if nll is not None},
        )
        return cls(
            step=int(values["step"]),
            samples=int(values["samples"]),
            seed=int(values["seed"]),
            unit=str(values["unit"]),
            fitted=fitted,
            whole=bool(values.get("whole", False)),
        )


def _positive(value: Any) -> float:
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError(f"{value} is not a factor")
    return number


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Keep it in the folder of the run."""
    RunDirectory(path).write_sealed(CALIBRATION_FILE, calibration.as_json())


def read_calibration(path: Path) -> Calibration | None:
    """The calibration in the folder of a run, for whichever checkpoint; None if there is none."""
    if not (path / CALIBRATION_FILE).exists():
        return None
    try:
        return Calibration.from_json(RunDirectory(path).read_sealed(CALIBRATION_FILE))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RunError(
            f"{path / CALIBRATION_FILE} is damaged; remove it, and run `bayesrnn calibrate` again"
        ) from None


def scaling_words(scaling: Scaling, samples: int) -> str:
    """The numbers that an inference uses: `noise x 0.72, temperature 1.05`, say."""
    temperature = scaling.temperature if samples else scaling.mean_temperature
    noise = f"noise x {scaling.noise:.2f}, " if samples and scaling.noise != 1 else ""
    return f"{noise}temperature {temperature:.2f}"


def calibration_text(calibration: Calibration) -> str:
    """What was found, in plain words."""
    fitted, scaling = calibration.fitted, calibration.scaling
    lines = [
        _line("mean weights", fitted.mean_nll, fitted.mean_nll_fitted, scaling, 0),
    ]
    if fitted.draws_nll is not None and fitted.draws_nll_fitted is not None:
        name = f"averaged over {counted(fitted.draws, 'draw')}"
        lines.append(_line(name, fitted.draws_nll, fitted.draws_nll_fitted, scaling, fitted.draws))
        best = "the draws" if calibration.best_samples else "the mean weights"
        lines.append(f"{best} predict the validation data best, and are used where you do not say")
    about = f"{fitted.predictions:,} validation {calibration.unit}s"
    title = f"negative log-likelihood of {about}, which noise and temperature were fitted to:"
    return "\n".join([title, *lines])


def _line(name: str, before: float, after: float, scaling: Scaling, samples: int) -> str:
    return f"{name}: {before:.4f}; {scaling_words(scaling, samples)}: {after:.4f}"
