"""What comes with a request: read up to a limit, as JSON or as bytes, and never as a form."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

from bayesrnn.runs.tab import TEXT_BYTES, Question
from bayesrnn.serve.refusal import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request

#: Seconds that a client may take to send what it has.
SECONDS: Final = 20.0

JSON, BYTES = "application/json", "application/octet-stream"


async def given_to(question: Question, request: Request) -> tuple[dict[str, Any], bytes]:
    """The options of a question, and the file that comes with it."""
    wanted = BYTES if question.content else JSON
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != wanted:
        raise Refusal(415, f"the content type is {kind or 'missing'!r}; this takes {wanted}")
    if question.content:
        options: dict[str, Any] = dict(request.query_params)
        content = await _read(request, question.content, question.noun)
        if not content:
            raise Refusal(400, f"the {question.noun} is empty; give another one")
        return options, content
    return _object(await _read(request, TEXT_BYTES, question.noun)), b""


async def _read(request: Request, most: int, noun: str) -> bytes:
    """All of the body; refused as soon as it is known to be too much."""
    too_much = Refusal(413, f"the {noun} is too large: at most {most / 1e6:g} MB are taken")
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()) or int(length[:20]) > most:
        raise too_much
    found = bytearray()

    async def read() -> None:
        async for part in request.stream():
            found.extend(part)
            if len(found) > most:
                raise too_much

    try:
        await asyncio.wait_for(read(), SECONDS)
    except asyncio.TimeoutError:
        raise Refusal(408, f"the {noun} did not come within {SECONDS:g} seconds") from None
    return bytes(found)


def _object(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Refusal(400, "the request is not a JSON object")
    return found


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
