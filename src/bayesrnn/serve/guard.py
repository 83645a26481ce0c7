"""Who may ask: the checks that come before every request, and the headers of every answer.

A page of another site must not be able to ask a server on this machine, neither by a request of its
own (Origin, Sec-Fetch-Site) nor by a name of its own that it lets point here (Host).
"""

import hmac
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from bayesrnn.serve.refusal import Refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


class Guard:
    """An application behind the checks.

    address: the one that the server listens on.
    token: what requests have to bring, in the address of the page or as `Authorization: Bearer`;
        None: nothing.
    """

    def __init__(self, app: App, address: str, token: str | None = None) -> None:
        self.app = app
        self.address = address
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *own]
            await send(message)

        try:
            self._check(scope)
        except Refusal as refusal:
            await _refuse(refusal, with_headers)
        else:
            await self.app(scope, receive, with_headers)

    def _check(self, scope: Scope) -> None:
        given: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = given.get("host", [])
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            raise Refusal(
                403,
                "this server is not called that; use the address that `bayesrnn serve` has printed",
            )
        origins = given.get("origin", [])
        if origins and origins != [f"http://{hosts[0]}"]:
            raise Refusal(403, "requests of other sites are not answered")
        if scope["path"].startswith("/api/"):
            if set(given.get("sec-fetch-site", [])) - {"same-origin", "none"}:
                raise Refusal(403, "requests of other sites are not answered")
            bearer = given.get("authorization", [""])[0]
            self._require_token(bearer.removeprefix("Bearer "))
        elif scope["path"] == "/":
            query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
            self._require_token(query.get("token", [""])[0])

    def _require_token(self, given: str) -> None:
        if self.token is not None and not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refusal(
                401,
                "the token is missing or wrong; use the whole address that `bayesrnn serve` has "
                "printed, with ?token=...",
            )

    def _is_ours(self, host: str) -> bool:
        """Whether a name cannot be one that somebody else lets point here."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            _ = urlsplit(f"//{host}").port
        except ValueError:
            return False
        if "@" in host or "/" in host or "?" in host or "#" in host:
            return False
        if is_loopback(self.address):
            return name == "localhost" or is_loopback(name)
        own = {"localhost", self.address.lower(), socket.gethostname().lower()}
        return name in own or _is_address(name)


def is_loopback(name: str) -> bool:
    """Whether an address is one that only this machine can reach; `localhost` is one."""
    if name == "localhost":
        return True
    return _is_address(name) and ipaddress.ip_address(name).is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def _refuse(refusal: Refusal, send: Send) -> None:
    content = json.dumps({"error": refusal.message}).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    headers.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
