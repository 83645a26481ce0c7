"""The notebooks run from the first cell to the last, and are kept without outputs."""

import json
import os
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="the extra `dev` brings it")
nbclient = pytest.importorskip("nbclient", reason="the extra `dev` brings it")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))


@pytest.fixture
def one_core(monkeypatch):
    """The program beside this Python, and one thread for all that a notebook starts."""
    folder = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", os.pathsep.join([folder, os.environ["PATH"]]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


# Jupyter warns of its own parts.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, one_core, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=280, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    said = "".join(
        output.get("text", "")
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert "\nbayesrnn: " not in f"\n{said}", "the program stopped with an error"
    assert "Unrecognized" not in said


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert "pip install" in "".join(code[0]["source"])


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["module", "series", "text"]
