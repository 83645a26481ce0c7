import sys
from importlib import util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run_example(monkeypatch, capsys):
    """A function that runs an example with arguments, and gives the lines that it prints."""

    def run(name, *arguments):
        path = EXAMPLES / f"{name}.py"
        spec = util.spec_from_file_location(name, path)
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        module.main()
        return capsys.readouterr().out.splitlines()

    return run
