"""`bayesrnn serve` as a process, and what it says to mistakes."""

import re
import shutil
import signal
import socket
import sys

import pytest

from bayesrnn.serve.command import page_address

httpx = pytest.importorskip("httpx", reason="the extra `dev` brings httpx")
pytest.importorskip("uvicorn", reason="the extra `serve` brings uvicorn")


@pytest.fixture
def served(start):
    """A function that starts the program on any free port; gives process and address."""

    def begin(*arguments):
        process = start("serve", *arguments, "--port", "0", "--threads", "1")
        line = process.stdout.readline()
        found = re.search(r"open (http://\S+)", line)
        assert found, line + process.stderr.read()
        return process, found[1]

    return begin


def test_it_answers_until_it_is_stopped_and_then_says_no_word(served, texts):
    process, address = served(texts)
    found = httpx.get(f"{address}api/runs").json()["runs"]
    assert [run["name"] for run in found] == ["bbb", "plain"]
    answer = httpx.post(f"{address}api/runs/0/read", json={"text": "a truth"}, timeout=60)
    assert len(answer.json()["words"]) == 2
    refused = httpx.get(f"{address}api/runs", headers={"host": "evil.example"})
    assert refused.status_code == 403
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors
    assert process.returncode in (0, 130)


def test_another_address_needs_the_token_that_is_printed(served, texts):
    _, address = served(texts / "plain", "--host", "0.0.0.0")
    found = re.fullmatch(r"http://0\.0\.0\.0:(\d+)/\?token=([\w-]{32})", address)
    assert found
    here = f"http://127.0.0.1:{found[1]}"
    assert httpx.get(f"{here}/api/runs").status_code == 401
    assert httpx.get(f"{here}/").status_code == 401
    assert httpx.get(f"{here}/?token={found[2]}").status_code == 200
    headers = {"authorization": f"Bearer {found[2]}"}
    assert httpx.get(f"{here}/api/runs", headers=headers).status_code == 200


def test_mistakes_are_one_line(program, texts, tmp_path):
    (tmp_path / "empty").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = [
            program("serve"),
            program("serve", tmp_path / "missing"),
            program("serve", tmp_path / "empty"),
            program("serve", texts, "--port", port),
            program("serve", texts, "--host", "no such host"),
            program("serve", texts, "--port", 70000),
        ]
    expected = [
        "no run was given to serve",
        "is not a run, nor a folder with runs",
        "is not a run, nor a folder with runs",
        f"cannot listen on 127.0.0.1, port {port}: Address already in use",
        "cannot listen on no such host",
        "--port is 70000",
    ]
    for (code, _, errors), words in zip(said, expected, strict=True):
        assert code == 1
        assert words in errors
        assert errors.count("\n") == 1


def test_without_the_extra_it_says_what_to_install(program, texts, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, errors = program("serve", texts)
    assert code == 1
    assert "pip install 'bayesrnn[serve]'" in errors


def test_a_run_without_a_checkpoint_can_be_watched_alone(asking, texts, tmp_path):
    young = shutil.copytree(texts / "plain", tmp_path / "young", symlinks=True)
    for name in ("best", "last"):
        (young / name).unlink()

    async def scenario(client):
        return [
            await client.post("/api/runs/0/read", json={"text": "a"}),
            await client.post("/api/runs/0/doctor"),
            await client.get("/api/runs/0/training"),
        ]

    read, doctor, training = asking(scenario, young)
    assert (read.status_code, doctor.status_code) == (422, 422)
    assert "no checkpoint yet" in read.json()["error"]
    assert training.json()["checkpoint"] is None


def test_a_better_checkpoint_is_opened_when_training_has_saved_it(asking, texts, tmp_path, program):
    run = shutil.copytree(texts / "plain", tmp_path / "going-on", symlinks=True)

    async def scenario(client):
        before = (await client.post("/api/runs/0/about")).json()["step"]
        code, _, errors = program(
            "train", "lm", "--resume", "--out", run, "--epochs", "2", "--no-calibrate"
        )
        assert code == 0, errors
        return before, (await client.post("/api/runs/0/about")).json()["step"]

    before, after = asking(scenario, run)
    assert after > before


def test_the_address_of_the_page():
    assert page_address(("127.0.0.1", 80), None) == "http://127.0.0.1:80/"
    assert page_address(("::1", 80, 0, 0), "secret") == "http://[::1]:80/?token=secret"
