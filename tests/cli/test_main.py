"""The command line knows every word, and imports only what is called."""

import subprocess
import sys

import pytest

from bayesrnn.cli.main import all_commands


@pytest.mark.parametrize(
    "arguments", [["--version"], ["--help"], ["train", "--help"], ["reproduce", "--help"]]
)
def test_help_does_not_wait_for_torch(arguments):
    code = (
        "import sys\nfrom bayesrnn.cli.main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print(sorted({'torch', 'numpy', 'jinja2'} & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout
    assert ran.stderr.strip() == "[]"


def test_the_first_line_of_each_command_is_the_one_that_is_shown():
    for words, command in all_commands().items():
        documented = " ".join((command.load().__doc__ or "").split())
        assert documented.startswith(command.summary), words


def test_a_missing_kernel_is_said_once_in_one_line(train_arguments, start, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BAYESRNN_KERNEL", raising=False)
    training = start(*train_arguments, "--method", "bbb", "--epochs", "1", "--out", tmp_path / "r")
    _, errors = training.communicate()
    assert training.returncode == 0, errors
    said = [line for line in errors.splitlines() if "compiled kernel" in line]
    assert len(said) == 1
    assert said[0].startswith("bayesrnn: the compiled kernel is missing (")
    assert "about twice as long" in said[0]
