"""What a task is, and a trained run of one."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import nn

from bayesrnn.methods.base import Method
from bayesrnn.progress import say
from bayesrnn.random import RandomStreams
from bayesrnn.runs.config import TrainingConfig
from bayesrnn.training.loop import Problem

Config = TypeVar("Config", bound=TrainingConfig)
Data = TypeVar("Data")


class Task(ABC, Generic[Config, Data]):
    """Something to learn: how its configuration, its data and its network come about."""

    #: The word after `bayesrnn train`.
    name: ClassVar[str]

    @abstractmethod
    def resolve(self, given: Mapping[str, Any], file: Mapping[str, Any] | None = None) -> Config:
        """A full configuration from what the user gave and a configuration file."""

    @abstractmethod
    def run_name(self, config: Config) -> str:
        """The name of the run's folder, if the user gives none."""

    @abstractmethod
    def load(self, config: Config) -> Data:
        """The data."""

    @abstractmethod
    def fingerprint(self, data: Data) -> str:
        """What tells the training data from any other."""

    @abstractmethod
    def files(self, data: Data) -> dict[str, str]:
        """Texts to keep in the run's folder: what the trained network needs to be used."""

    @abstractmethod
    def build(
        self, config: Config, files: Mapping[str, str], method: Method[Any], streams: RandomStreams
    ) -> nn.Module:
        """What the method trains, at its start."""

    @abstractmethod
    def problem(
        self, config: Config, data: Data, method: Method[Any], net: nn.Module, device: torch.device
    ) -> Problem:
        """What the training loop needs to know."""


@dataclass(frozen=True)
class TrainedRun(Generic[Config]):
    """A trained network, ready to predict."""

    path: Path
    config: Config
    method: Method[Any]
    net: nn.Module
    step: int
    device: torch.device
    #: The texts that the task keeps in the run's folder.
    files: Mapping[str, str]
    #: What tells its training data from any other (`Task.fingerprint`), where that was kept.
    fingerprint: str | None = None

    def note_one_network(self, doing: str) -> None:
        """Tell the user which network stands for all that the run keeps, if it keeps several."""
        members = self.method.members(self.net)
        if members > 1:
            used = self.method.mean_label
            say(f"note: the run keeps {members} networks; {doing} uses one: {used}")
