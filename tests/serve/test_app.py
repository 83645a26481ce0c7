import asyncio
import json
from dataclasses import dataclass

import pytest

from bayesrnn.options import CheckedOptions, option
from bayesrnn.runs.tab import TEXT_BYTES, Question, checked
from bayesrnn.serve import content
from bayesrnn.serve.app import make_app
from bayesrnn.serve.jobs import Jobs
from bayesrnn.serve.served import found_runs
from bayesrnn.tasks import task_of

BYTES = {"content-type": "application/octet-stream"}


def test_the_runs_are_listed_with_the_scripts_of_their_tabs(asking, texts):
    async def scenario(client):
        listed = (await client.get("/api/runs")).json()["runs"]
        return listed, await client.get(listed[0]["script"]), await client.get("/")

    listed, script, page = asking(scenario, texts)
    assert [(run["name"], run["method"], run["title"]) for run in listed] == [
        ("bbb", "bbb", "Text"),
        ("plain", "plain", "Text"),
    ]
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "export function makeContent" in script.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'; ")
    assert "style=" not in page.text
    assert "<script>" not in page.text


def test_the_page_names_no_file_that_is_not_served(asking, texts):
    async def scenario(client):
        page = (await client.get("/")).text
        names = [part.partition('"')[0] for part in page.split('="')[1:]]
        return [(await client.get(name)).status_code for name in names if name.startswith("/")]

    assert asking(scenario, texts) == [200, 200, 200]


@pytest.mark.parametrize(
    ("method", "path", "expected", "said"),
    [
        ("GET", "/api/runs/7/training", 404, "no run number 7"),
        ("POST", "/api/runs/0/paint", 404, "no question 'paint'"),
        ("GET", "/static/../app.py", 404, ""),
        ("GET", "/static/app.py", 404, ""),
        ("PUT", "/api/runs", 405, ""),
        ("GET", "/api/runs/0/read", 405, ""),
    ],
)
def test_what_is_not_there_is_refused(asking, texts, method, path, expected, said):
    async def scenario(client):
        return await client.request(method, path, json={} if method == "POST" else None)

    found = asking(scenario, texts)
    assert found.status_code == expected
    assert said in found.text


def test_a_mistake_is_answered_in_words(asking, texts):
    async def scenario(client):
        def read(**given):
            return client.post("/api/runs/0/read", json=given)

        return [
            (await one).json()["error"]
            for one in (
                read(text="a", samples=21),
                read(text="a", samples="many"),
                read(text="a", paint=1),
                read(),
                read(text="  \n "),
                read(text=5),
                read(text="word " * 3000),
            )
        ]

    assert asking(scenario, texts) == [
        "--samples is 21; it has to be from 1 to 20",
        "samples is 'many'; it has to be a number",
        "there is no option 'paint'; there are: text, samples, noise, seed",
        "text is missing; give it",
        "the text has no words; give at least one",
        "--text is 5; it has to be a text",
        "the text has 3,000 words, and the page shows at most 2,000; give a part of it, or all of "
        "it to `bayesrnn inspect`",
    ]


def test_contents_that_are_too_large_or_of_another_kind_are_refused(asking, texts):
    async def parts(size):
        for _ in range(size):
            yield b"x" * 100_000

    async def scenario(client):
        path, kind = "/api/runs/0/read", {"content-type": "application/json"}
        sent = [
            {"content": b"x" * (TEXT_BYTES + 1), "headers": kind},
            {"content": parts(11), "headers": kind},  # without saying how long it is
            {"content": b"{}", "headers": {**kind, "content-length": "-1"}},
            {"content": b"{}", "headers": {"content-type": "text/plain"}},
            {"data": {"text": "a"}},
            {"files": {"text": b"a"}},
            {"content": b"{", "headers": kind},
            {"content": b"[]", "headers": kind},
            {"content": b'{"noise": NaN}', "headers": kind},
            {"content": b"[" * 200_000, "headers": kind},
        ]
        return [(await client.post(path, **one)).status_code for one in sent]

    assert asking(scenario, texts) == [413, 413, 413, 415, 415, 415, 400, 400, 400, 400]


def test_the_options_of_a_file_are_in_the_address():
    @dataclass(frozen=True)
    class Sized(CheckedOptions):
        size: int = option(1, "a size", ge=1)
        name: str = option("x", "a name")

    assert checked(Sized, {"size": "3", "name": "7"}) == Sized(3, "7")


def test_a_body_that_does_not_come_is_not_waited_for(texts, monkeypatch):
    monkeypatch.setattr(content, "SECONDS", 0.01)
    sent = asyncio.run(raw_request(texts, [{"body": b"{", "more_body": True}]))
    assert sent["status"] == 408
    assert "did not come" in sent["error"]


def test_who_goes_away_gets_no_answer_and_the_next_one_does(texts, monkeypatch):
    begun = []

    def answer(opened, options, content):
        while True:
            begun.append(opened.net.module.embedding.weight.sum())
            opened.method.mean(opened.net)(one_word())

    def one_word():
        import torch

        return torch.zeros(1, 1, dtype=torch.long)

    runs = found_runs([texts / "bbb"], task_of)
    tab = runs[0].tab
    question = Question(tab.questions["read"].options, answer)
    monkeypatch.setitem(tab.questions, "read", question)
    gone = [{"body": b'{"text": "a"}'}, {"type": "http.disconnect"}]
    sent = asyncio.run(raw_request(texts / "bbb", gone, runs))
    assert sent["status"] == 499


async def raw_request(path, messages, runs=None):
    """A request in the messages of a server; waits for ever after the last of them."""
    jobs, sent, waiting = Jobs(), [], [*messages]
    app = make_app(runs or found_runs([path], task_of), jobs)

    async def receive():
        if not waiting:
            await asyncio.Event().wait()
        return {"type": "http.request", **waiting.pop(0)}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/runs/0/read",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }
    try:
        await app(scope, receive, send)
        next_one = await asyncio.wait_for(jobs.run(lambda: "next"), 60)
    finally:
        jobs.close()
    assert next_one == "next"
    return {"status": sent[0]["status"], **json.loads(sent[1]["body"])}


def test_an_error_of_ours_is_told_to_the_terminal_alone(asking, texts, monkeypatch, capsys):
    def fails(opened, options, content):
        raise ZeroDivisionError("a secret of the machine")

    runs = found_runs([texts / "plain"], task_of)
    question = Question(runs[0].tab.questions["read"].options, fails)
    monkeypatch.setitem(runs[0].tab.questions, "read", question)

    async def scenario(client):
        return await client.post("/api/runs/0/read", json={"text": "a"})

    found = asking(scenario, texts / "plain")
    assert found.status_code == 500
    assert "secret" not in found.text
    assert "a secret of the machine" in capsys.readouterr().err


def test_eight_clients_are_answered_or_told_to_come_again_and_none_is_lost(asking, texts):
    async def client_of(client, number):
        answered = refused = 0
        while answered < 4:
            given = {"text": f"it is a truth {number} {answered}", "samples": 2}
            found = await client.post("/api/runs/0/read", json=given)
            assert found.status_code in (200, 503)
            if found.status_code == 200:
                assert found.json()["words"]
                answered += 1
            else:
                assert found.headers["retry-after"] == "1"
                refused += 1
                await asyncio.sleep(0.005)
        return answered, refused

    async def scenario(client):
        return await asyncio.gather(*(client_of(client, number) for number in range(8)))

    found = asking(scenario, texts / "bbb")
    assert [answered for answered, _ in found] == [4] * 8
    assert sum(refused for _, refused in found) > 0


def test_a_token_is_asked_for(asking, texts):
    async def scenario(client):
        without = await client.get("/api/runs")
        client.headers["authorization"] = "Bearer secret"
        return without.status_code, (await client.get("/api/runs")).status_code

    assert asking(scenario, texts, token="secret") == (401, 200)


def test_the_course_of_a_training_and_what_the_doctor_says(asking, texts):
    async def scenario(client):
        return [
            await client.get("/api/runs/0/training"),
            await client.post("/api/runs/0/doctor"),
        ]

    training, doctor = (found.json() for found in asking(scenario, texts / "bbb"))
    assert training["done"] == training["planned"] == 1
    assert training["epochs"][0]["valid"] > 1
    assert doctor["step"] == training["checkpoint"]
    assert {"Training", "Nats a prediction"} <= {table["title"] for table in doctor["tables"]}
