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
