"""The code in docs/own-module.md runs, in its order."""

import re
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[1] / "docs" / "own-module.md"


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The tensor attribute")  # torch's own, while it exports
def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 5
    names = {"__name__": "page"}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks:
            exec(compile(block, PAGE.name, "exec"), names)
    assert names["found"].best_epoch >= 1
    assert {file.name for file in tmp_path.iterdir()} == {"model.pt2", "drawn.pt2"}
