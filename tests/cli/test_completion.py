"""Tab completion, asked of the shells themselves."""

import os
import shutil
import subprocess
import sys

import pytest

from bayesrnn.cli.main import all_commands


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """A function from a shell to the file with its script."""
    folder = tmp_path_factory.mktemp("completion")

    def make(shell):
        if not shutil.which(shell):
            pytest.skip(f"no {shell} here")
        path = folder / shell
        if not path.exists():
            command = [sys.executable, "-m", "bayesrnn", "completion", shell]
            path.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
        return path

    return make


def completed_by_bash(script, *words):
    """What a tab key offers behind words, the last of which is not whole."""
    given = " ".join(f"'{word}'" for word in words)
    asked = (
        f"source {script}; COMP_WORDS=(bayesrnn {given}); COMP_CWORD={len(words)}; _bayesrnn; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    run = ["bash", "--norc", "-c", asked]
    return subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["tra"], ["train"]),
        (["train", "s"], ["sentiment"]),
        (["train", "lm", "--corp"], ["--corpus"]),
        (["train", "lm", "--method", "bb"], ["bbb"]),
        (["train", "lm", "--hidden", "8", "--cell", ""], ["lstm", "gru", "rnn"]),
        (["evaluate", "runs/mine", "--spl"], ["--split"]),
        (["evaluate", "runs/mine", "--split", "t"], ["train", "test"]),
        (["completion", "f"], ["fish"]),
        # Paths are left to bash itself.
        (["evaluate", "runs/my"], []),
        (["train", "lm", "--out", "runs/"], []),
        (["compare", "one", "two", "thr"], []),
    ],
)
def test_bash(script, words, offered):
    assert completed_by_bash(script("bash"), *words) == offered


def test_bash_completes_paths_itself(script):
    assert "complete -o default " in script("bash").read_text()


@pytest.mark.parametrize("words", all_commands(), ids=" ".join)
def test_every_command_is_known(script, words):
    assert words[-1] in completed_by_bash(script("bash"), *words[:-1], words[-1])
    assert "--help" in completed_by_bash(script("bash"), *words, "--h")


def test_fish(script, tmp_path):
    (tmp_path / "my-run").mkdir()
    path, offered = script("fish"), {}
    for line in ("tra", "train lm --method bb", "train lm --corp", "evaluate --split t"):
        asked = f"source {path}; complete -C 'bayesrnn {line}'"
        environment = {**os.environ, "HOME": str(tmp_path)}
        command = ["fish", "--no-config", "-c", asked]
        out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        offered[line] = [one.split("\t")[0] for one in out.stdout.splitlines()]
    assert list(offered.values()) == [["train"], ["bbb"], ["--corpus"], ["test", "train"]]
    asked = f"source {path}; complete -C 'bayesrnn evaluate my'"
    command = ["fish", "--no-config", "-c", asked]
    out = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert out.stdout.split() == ["my-run/"]


def test_zsh_is_bash_with_its_own_loader(script):
    text = script("zsh").read_text()
    assert text.startswith("autoload")
    subprocess.run(["zsh", "-n", str(script("zsh"))], check=True)


def test_another_shell_is_refused(program):
    code, _, errors = program("completion", "powershell")
    assert code == 2
    assert "invalid choice 'powershell'" in errors
