"""A trained forecaster, and the data of its run."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from bayesrnn.errors import RunError
from bayesrnn.runs.task import TrainedRun
from bayesrnn.tasks.forecast.config import ForecastConfig
from bayesrnn.tasks.forecast.data import ForecastData
from bayesrnn.tasks.forecast.layout import Layout, read_layout
from bayesrnn.tasks.forecast.source import data_of

LAYOUT_FILE: Final = "layout.json"


@dataclass(frozen=True)
class TrainedForecaster(TrainedRun[ForecastConfig]):
    """A trained forecaster, ready to forecast."""

    @cached_property
    def layout(self) -> Layout:
        """Its inputs and outputs."""
        return read_layout(self.files[LAYOUT_FILE])

    def own_file(self, name: str) -> Path:
        """Where a result of this name goes: into the run, or beside the file of a pruned one."""
        if self.path.is_dir():
            return self.path / name
        return self.path.with_name(f"{self.path.stem}-{name}")

    def data(self) -> ForecastData:
        """The series that it learnt from."""
        data = data_of(self.config)
        # With other values, windows that were trained on could pass for tested ones.
        known = self.fingerprint in (None, data.series.fingerprint())
        if data.layout != self.layout or not known:
            raise RunError(
                f"the series of {self.config.data} are not those that {self.path} was trained on; "
                "give back the same data"
            )
        return data
