import asyncio
import socket

import pytest

from bayesrnn.serve.guard import HEADERS, Guard, is_loopback


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"answer"})


def status(headers, path="/api/runs", query="", address="127.0.0.1", token=None):
    sent = []

    async def send(message):
        sent.append(message)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "path": path, "query_string": query.encode(), "headers": raw}
    asyncio.run(Guard(answer, address, token)(scope, None, send))
    given = dict(sent[0]["headers"])
    assert {name: given[name.encode()].decode() for name in HEADERS} == HEADERS
    return sent[0]["status"]


OURS = ("host", "127.0.0.1:8765")


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8765", True),
        ("localhost:9000", True),  # by a tunnel
        ("[::1]:8765", True),
        ("LOCALHOST", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8765", False),
        ("localhost.evil.example", False),
        ("192.168.1.2:8765", False),
        ("evil.example@127.0.0.1", False),
        ("127.0.0.1/evil", False),
        ("127.0.0.1:port", False),
        ("[::1", False),
        ("", False),
    ],
)
def test_on_the_loopback_a_host_is_one_of_its_names(host, allowed):
    assert status([("host", host)]) == (200 if allowed else 403)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("192.168.1.2:8765", True),
        (socket.gethostname(), True),
        ("localhost", True),
        ("evil.example", False),
    ],
)
def test_on_other_addresses_a_host_is_an_address_or_the_name_of_the_machine(host, allowed):
    assert status([("host", host)], address="0.0.0.0") == (200 if allowed else 403)


def test_a_request_without_a_host_or_with_two_is_refused():
    assert status([]) == 403
    assert status([OURS, ("host", "evil.example")]) == 403


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://127.0.0.1:8765", True),
        ("http://127.0.0.1:1234", False),
        ("http://localhost:8765", False),
        ("https://127.0.0.1:8765", False),
        ("http://evil.example", False),
        ("null", False),
    ],
)
def test_an_origin_is_the_page_itself(origin, allowed):
    assert status([OURS, ("origin", origin)]) == (200 if allowed else 403)


@pytest.mark.parametrize(
    ("site", "expected"),
    [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403)],
)
def test_questions_come_from_the_page_itself_while_a_link_may_lead_to_it(site, expected):
    assert status([OURS, ("sec-fetch-site", site)]) == expected
    assert status([OURS, ("sec-fetch-site", site)], path="/") == 200


def test_with_a_token_page_and_questions_need_it():
    def found(path, query="", *headers):
        return status([OURS, *headers], path, query, token="secret")

    assert found("/") == 401
    assert found("/", "token=wrong") == 401
    assert found("/", "token=secret") == 200
    assert found("/static/main.js") == 200  # what is public anyway
    assert found("/api/runs") == 401
    assert found("/api/runs", "token=secret") == 401
    assert found("/api/runs", "", ("authorization", "Bearer secret")) == 200
    assert found("/api/runs", "", ("authorization", "Bearer sécret")) == 401


def test_nothing_but_http_is_answered():
    asyncio.run(Guard(answer, "127.0.0.1")({"type": "websocket"}, None, None))


def test_which_addresses_are_of_the_loopback():
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "example.org", "")))
