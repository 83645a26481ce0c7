"""`bayesrnn inspect` on runs of every method, and what it says to mistakes."""

import json
from html.parser import HTMLParser

import pytest

from ...conftest import FAINT, METHODS

TEXT = "It is a truth, that Zaphod was a man. He said"
CUT = ["it", "is", "a", "truth", ",", "that", "zaphod", "was", "a", "man", ".", "<eos>"]
CUT += ["he", "said"]


@pytest.mark.parametrize("method", METHODS)
def test_a_text(method, runs, program, tmp_path):
    page, result = tmp_path / "new" / "page.html", tmp_path / "result.json"
    code, out, errors = program(
        *("inspect", runs / method, "--text", TEXT, "--samples", 4, "--top", 3),
        *("--html", page, "--json", result, "--seed", 3),
    )
    assert code == 0, errors
    found = json.loads(result.read_text())
    draws = {"plain": 0, "ensemble": 2}.get(method, 4)  # the ensemble has two members
    assert (found["method"], found["seed"], found["samples"]) == (method, 3, draws)
    assert found["step"] > 0
    assert [word["word"] for word in found["words"]] == CUT
    assert [word["word"] for word in found["words"] if not word["known"]] == ["zaphod"]
    for word in found["words"]:
        assert 0 < word["probability"] <= word["likeliest_probability"] < 1
        assert word["entropy"] == pytest.approx(word["aleatoric"] + word["epistemic"])
        if method == "plain":
            assert word["epistemic"] == 0
            assert word["low"] is None
        elif method in FAINT:
            assert word["epistemic"] >= 0
            assert 0 < word["low"] <= word["high"]
        else:
            assert word["epistemic"] > 0
            assert 0 < word["low"] < word["high"]
    if method != "plain":
        assert any(word["low"] < word["high"] for word in found["words"])
    assert len(found["next"]) == 3
    assert all((word["spread"] is None) == (method == "plain") for word in found["next"])
    assert max(map(len, out.splitlines())) <= 100
    assert "\x1b" not in out
    assert "[zaphod]" in out
    assert "¶" in out
    assert f"perplexity {found['perplexity']:.2f}" in out
    assert ("disagree" in out) == (method != "plain")
    assert "zaphod" in page.read_text(encoding="utf-8")


def test_the_same_seed_gives_the_same(runs, program):
    outs = [
        program("inspect", runs / "bbb", "--text", TEXT, "--samples", 3, "--seed", seed)[1]
        for seed in (1, 1, 2)
    ]
    assert outs[0] == outs[1] != outs[2]


def test_the_mean_network_alone(runs, program):
    code, out, _ = program("inspect", runs / "bbb", "--text", TEXT, "--samples", 0)
    assert code == 0
    assert out.startswith("bbb, the mean network: 14 words")
    assert "epistemic" not in out


def test_a_file_keeps_the_end_of_its_last_sentence(runs, program, tmp_path):
    file, result = tmp_path / "text.txt", tmp_path / "result.json"
    file.write_text(f"{TEXT} nothing.\n\n<script>alert('no')</script> \N{SNOWMAN}\n")
    page = tmp_path / "page.html"
    code, out, errors = program(
        *("inspect", runs / "bbb", "--file", file, "--samples", 2),
        *("--json", result, "--html", page),
    )
    assert code == 0, errors
    words = [word["word"] for word in json.loads(result.read_text())["words"]]
    assert words[:17] == [*CUT, "nothing", ".", "<eos>"]
    assert words[-1] == "<eos>"
    assert "\N{SNOWMAN}" in out
    text = page.read_text(encoding="utf-8")
    tags = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attributes):
            tags.append(tag)

    Tags().feed(text)
    assert "script" not in tags
    assert "http" not in text.replace("http-equiv", "")


def test_json_on_the_screen_is_json_alone(runs, program):
    code, out, _ = program(
        "inspect", runs / "plain", "--text", "it is", "--json", "-", "--samples", 2
    )
    assert code == 0
    assert [word["word"] for word in json.loads(out)["words"]] == ["it", "is"]


def test_colour_in_a_terminal(runs, program, monkeypatch):
    monkeypatch.setattr("bayesrnn.tasks.lm.inspect.wants_colour", lambda stream: True)
    code, out, _ = program("inspect", runs / "bbb", "--text", TEXT, "--samples", 2)
    assert code == 0
    assert "\x1b[38;5;" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["neither", "--text", "--file"]),
        (["--text", "a", "--file", "b"], ["both", "--text", "--file"]),
        (["--text", ""], ["--text", "no words"]),
        (["--text", " \n\n "], ["--text", "no words"]),
        (["--file", "missing.txt"], ["missing.txt", "check the path"]),
        (["--file", "."], ["not a file"]),
        (["--text", "a", "--samples", "-1"], ["--samples", "-1"]),
        (["--text", "a", "--top", "0"], ["--top", "0"]),
        (["--text", "a", "--checkpoint", "99"], ["99"]),
        (["--text", "a", "--html", "/dev/null/page.html"], ["/dev/null/page.html"]),
        (["--text", "a", "--json", "/dev/null/result.json"], ["/dev/null/result.json"]),
    ],
)
def test_mistakes_get_one_clear_line(options, words, runs, program):
    code, _, errors = program("inspect", runs / "plain", *options)
    assert code == 1
    assert errors.count("\n") == 1
    assert "Traceback" not in errors
    for word in words:
        assert word in errors


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", ["no words"]), (b"\n\n", ["no words"]), (b"\0\1", ["NUL"]), (b"\xe9t\xe9", ["UTF-8"])],
)
def test_a_file_that_is_not_a_text(content, words, runs, program, tmp_path):
    file = tmp_path / "strange"
    file.write_bytes(content)
    code, _, errors = program("inspect", runs / "plain", "--file", file)
    assert code == 1
    assert errors.count("\n") == 1
    assert str(file) in errors
    for word in words:
        assert word in errors


def test_a_run_of_digits_is_refused(program, tmp_path):
    (tmp_path / "config.toml").write_text('task = "mnist"\n')
    code, _, errors = program("inspect", tmp_path, "--text", "one")
    assert code == 1
    assert "bayesrnn train lm" in errors
    assert errors.count("\n") == 1


def test_something_else_than_a_run_is_refused(program, tmp_path):
    code, _, errors = program("inspect", tmp_path, "--text", "one")
    assert code == 1
    assert "config.toml" in errors


def test_help(program):
    code, out, _ = program("inspect", "--help")
    assert code == 0
    for option in ("--text", "--file", "--html", "--json", "--samples", "--top", "--checkpoint"):
        assert option in out


def test_a_terminal_that_knows_only_ascii(runs, start, program, monkeypatch):
    arguments = ("inspect", runs / "plain", "--text", "It is. A truth")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    _, plain, _ = program(*arguments)
    process = start(*arguments)
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert out == plain.replace("¶", "?").replace("…", "?")


def test_a_narrow_terminal(runs, program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = program("inspect", runs / "plain", "--text", TEXT)
    assert code == 0
    words = out[: out.index("The least expected")]
    assert 30 < max(map(len, words.splitlines())) <= 60


def test_files_are_refused_before_the_work(runs, program, tmp_path):
    command = ("inspect", runs / "plain", "--text", TEXT)
    assert "--html is -" in program(*command, "--html", "-")[2]
    assert "cannot write" in program(*command, "--json", tmp_path)[2]
