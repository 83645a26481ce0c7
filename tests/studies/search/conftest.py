"""The toy task, and searches over runs of it."""

import pytest

from bayesrnn.studies.search.command import search_runs
from bayesrnn.studies.search.options import SearchOptions
from bayesrnn.studies.search.search import Search
from bayesrnn.studies.search.settings import read_settings
from bayesrnn.tasks import TASKS

pytest.importorskip("optuna", reason="the extra `search` brings optuna")

#: A space of three options of bbb, two of them as the metadata of the options has them.
SPACE = """
prior = "mixture"
prior_per = {choices = ["row", "weight"]}
antithetic = {}
[sigma_scale]
low = 0.1
high = 3.0
log = true
"""


@pytest.fixture
def toy(monkeypatch, request):
    monkeypatch.syspath_prepend(request.config.rootpath / "tests" / "tasks")
    monkeypatch.setitem(TASKS.packages, "toy", "toy")
    return TASKS["toy"]


@pytest.fixture
def space_file(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(SPACE)
    return path


@pytest.fixture
def search(toy, tmp_path, space_file):
    """A function that searches over toy runs; gives the folder and what was printed."""

    def run(name="search", trials=3, given=(), **options):
        folder = tmp_path / name
        asked = SearchOptions(out=folder, trials=trials, space=str(space_file), **options)
        machine = {"device": "cpu", "threads": 1}
        return folder, search_runs(toy, asked, {"method": "bbb", **machine, **dict(given)})

    return run


@pytest.fixture
def opened(toy):
    """A function that opens the search of a folder as a worker does."""
    return lambda folder: Search(folder, read_settings(folder, toy), lease_seconds=60.0)
