"""What anybody may have written is read, or refused in one line, and soon."""

import gzip
import os

import pytest

from bayesrnn.data.files import read_bytes
from bayesrnn.durable import remove_left_behind
from bayesrnn.errors import ConfigError, CorpusError
from bayesrnn.options import from_toml
from bayesrnn.progress import at_most_a_screen
from bayesrnn.tasks.sentiment.data import Labels, Numbers, read_target
from bayesrnn.untrusted import plain_json, read_regular, sealed_json, unsealed


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "9" * 10_000, "9" * 20, "1e999", "NaN", "-Infinity", "{", b"\xff"]
)
def test_json_that_nothing_of_ours_holds(text):
    with pytest.raises(ValueError, match=r"."):
        plain_json(text)


def test_json_that_is_ours():
    assert plain_json('{"a": [1, -2.5e-3, null, true, "x"]}') == {
        "a": [1, -0.0025, None, True, "x"]
    }
    assert plain_json(str(-(2**63) + 1)) == -(2**63) + 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * 50_000, "nested too deep"),
        ("[" + "a." * 9_000 + "a]", "nested too deep"),
        ("a." * 20_000 + "a = 1", "too long"),
        ("a = " + "9" * 10_000, "not a TOML file"),
        ("a = 9999999999999999999", "more than 64 bits"),
        ("a = 1\na = 2", "not a TOML file"),
    ],
)
def test_toml_that_no_options_are_in(text, words):
    with pytest.raises(ConfigError, match=words) as caught:
        from_toml(text, "here.toml")
    assert len(str(caught.value)) < 400


def test_a_file_and_what_is_none(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read_regular(file) == b"12345"
    with pytest.raises(OSError, match="at most 4 are read"):
        read_regular(file, most=4)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "inside").symlink_to("file")
    (tmp_path / "outside").symlink_to(__file__)
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "round").symlink_to("round")
    assert read_regular(tmp_path / "inside", inside=tmp_path) == b"12345"
    assert read_regular(tmp_path / "outside")
    for name in ("pipe", "device", "."):
        with pytest.raises(OSError, match="not a file"):
            read_regular(tmp_path / name)
    for name in ("outside", "device", "round"):
        with pytest.raises(OSError, match="leads out of the folder"):
            read_regular(tmp_path / name, inside=tmp_path)


def test_a_seal_tells_every_change():
    sealed = sealed_json({"a": 0.1, "b": (1, 2)})
    assert unsealed(plain_json(sealed)) == {"a": 0.1, "b": [1, 2]}
    assert unsealed({"a": 1}) == {"a": 1}  # of an earlier version
    with pytest.raises(ValueError, match="checksum"):
        unsealed(plain_json(sealed.replace(b"0.1", b"0.2")))


def test_a_packed_file_that_becomes_too_much(tmp_path, monkeypatch):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(bytes(3_000_000)) * 2)
    monkeypatch.setenv("BAYESRNN_UNPACKED_MB", "5")
    with pytest.raises(CorpusError, match=r"more than 5 MB.*set BAYESRNN_UNPACKED_MB"):
        read_bytes(path)
    monkeypatch.setenv("BAYESRNN_UNPACKED_MB", "6")
    assert len(read_bytes(path)) == 6_000_000


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "number", "mean": 1, "sd": 0}',
        '{"kind": "number", "mean": 1, "sd": "2"}',
        '{"kind": "number", "mean": true, "sd": 2}',
        '{"kind": "numbers", "mean": 1, "sd": 2}',
        '{"kind": "label", "labels": "ab"}',
        '{"kind": "label", "labels": ["a", "a"]}',
        '{"kind": "label", "labels": [["a"], "b"]}',
        '{"kind": "label", "labels": []}',
        "[]",
        "[" * 100_000,
    ],
)
def test_targets_that_cannot_be(text):
    with pytest.raises(CorpusError, match=r"target.json is damaged"):
        read_target(text)


def test_targets_that_can_be():
    assert read_target('{"kind": "number", "mean": 1, "sd": 2.5}') == Numbers(1.0, 2.5)
    assert read_target('{"kind": "label", "labels": ["a", "b"]}') == Labels(("a", "b"))


def test_a_message_keeps_its_beginning_and_its_end():
    assert at_most_a_screen("short") == "short"
    shown = at_most_a_screen("what " + "x" * 100_000 + " do this")
    assert len(shown) < 2000
    assert shown.startswith("what x")
    assert shown.endswith("x do this")


def test_files_of_killed_writers_are_removed_and_others_stay(tmp_path):
    process = os.fork()
    if not process:
        os._exit(0)
    os.waitpid(process, 0)
    stay = {f".mine.{os.getpid()}.tmp", ".mine.tmp", "mine.1.tmp", ".mine.x.tmp", "page.html"}
    for name in (*stay, f".config.toml.{process}.tmp"):
        (tmp_path / name).touch()
    remove_left_behind(tmp_path)
    remove_left_behind(tmp_path / "not there")
    assert {path.name for path in tmp_path.iterdir()} == stay
