"""Fixtures that every test can use."""

import os
from pathlib import Path

import pytest
import torch


def pytest_configure() -> None:
    """One thread per xdist worker and per program it starts: more would fight for the cores."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the published data sets; a test that needs it is skipped without it."""
    given = os.environ.get("BAYESRNN_DATA")
    if not given:
        pytest.skip("BAYESRNN_DATA is not set")
    folder = Path(given)
    if not folder.is_dir():
        pytest.fail(f"BAYESRNN_DATA is not a folder: {folder}")
    return folder
