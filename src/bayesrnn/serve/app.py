"""The application: which address gives what."""

from __future__ import annotations

import asyncio
import json
import math
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bayesrnn import __version__
from bayesrnn.errors import BayesRNNError, MissingExtraError
from bayesrnn.runs.tab import checked
from bayesrnn.serve.assets import PAGE, load_assets, script_path
from bayesrnn.serve.content import given_to
from bayesrnn.serve.guard import Guard
from bayesrnn.serve.jobs import ADVICE, Jobs
from bayesrnn.serve.refusal import Refusal
from bayesrnn.serve.served import ServedRun
from bayesrnn.serve.watching import doctor_of, training_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

Handler = Callable[["Request"], Awaitable["Response"]]

#: The status of a request whose client is gone, which nobody sees.
_CLIENT_GONE = 499


def make_app(
    runs: Sequence[ServedRun],
    jobs: Jobs,
    address: str = "127.0.0.1",
    token: str | None = None,
) -> Guard:
    """An ASGI application that answers for runs.

    address: the one that it is reached at. token: see `Guard`.
    """
    try:
        from starlette.applications import Starlette
        from starlette.responses import Response
        from starlette.routing import Route
    except ImportError:
        raise MissingExtraError(
            "serving a page needs an extra: pip install 'bayesrnn[serve]'"
        ) from None

    assets = load_assets(run.tab for run in runs if run.tab is not None)

    async def page(request: Request) -> Response:
        asset = assets[f"/static/{PAGE}" if request.url.path == "/" else request.url.path]
        return Response(asset.content, media_type=asset.kind)

    async def listed(request: Request) -> Response:
        return _json({"version": __version__, "runs": [_about(run) for run in runs]})

    async def training(request: Request) -> Response:
        run = _chosen(runs, request)
        return _json(await asyncio.to_thread(training_of, run.task, run.path))

    async def ask(request: Request) -> Response:
        run, name = _chosen(runs, request), request.path_params["question"]
        questions = {} if run.tab is None else run.tab.questions
        with jobs.place():
            if name == "about":
                return await _while_wanted(request, jobs, run.about)
            if name == "doctor":
                advice = f"`bayesrnn doctor {run.path}` may take longer"
                return await _while_wanted(
                    request, jobs, lambda: doctor_of(run.task, run.path), advice
                )
            if name not in questions:
                raise Refusal(404, f"runs of {run.task.name} have no question {name!r}")
            question = questions[name]
            given, content = await given_to(question, request)
            options = checked(question.options, given)
            return await _while_wanted(request, jobs, lambda: run.ask(question, options, content))

    routes = [
        *(Route(path, _explained(page), methods=["GET"]) for path in ("/", *assets)),
        Route("/api/runs", _explained(listed), methods=["GET"]),
        Route("/api/runs/{run:int}/training", _explained(training), methods=["GET"]),
        Route("/api/runs/{run:int}/{question:str}", _explained(ask), methods=["POST"]),
    ]
    return Guard(Starlette(routes=routes), address, token)


def _about(run: ServedRun) -> dict[str, Any]:
    tab = run.tab
    return {
        "name": run.name,
        "path": str(run.path),
        "task": run.task.name,
        "method": run.method,
        "watched": run.path.is_dir(),
        "title": None if tab is None else tab.title,
        "script": None if tab is None else script_path(tab),
    }


def _chosen(runs: Sequence[ServedRun], request: Request) -> ServedRun:
    number: int = request.path_params["run"]
    if number >= len(runs):
        raise Refusal(404, f"there is no run number {number}; there are {len(runs)}, from 0 on")
    return runs[number]


def _explained(handler: Handler) -> Handler:
    """A handler whose errors become messages: those of users as they are, ours without details."""

    async def explained(request: Request) -> Response:
        try:
            return await handler(request)
        except Refusal as refusal:
            after = refusal.retry_after
            headers = {} if after is None else {"retry-after": str(after)}
            return _json({"error": refusal.message}, refusal.status, headers)
        except BayesRNNError as error:
            return _json({"error": str(error)}, 422)
        except Exception as error:
            traceback.print_exception(error)
            message = "the server met an error of its own; its terminal says which"
            return _json({"error": message}, 500)

    return explained


async def _while_wanted(
    request: Request, jobs: Jobs, work: Callable[[], Any], advice: str = ADVICE
) -> Response:
    """The answer as JSON; the work is stopped if the client goes."""
    work_and_encode = asyncio.ensure_future(jobs.run(lambda: encoded(work()), advice))
    gone = asyncio.ensure_future(_until_gone(request))
    try:
        await asyncio.wait({work_and_encode, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work_and_encode.done():
            raise Refusal(_CLIENT_GONE, "nobody waits for the answer any more")
        return _response(work_and_encode.result())
    finally:
        for task in (work_and_encode, gone):
            task.cancel()
        await asyncio.gather(work_and_encode, gone, return_exceptions=True)


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def encoded(value: Any) -> bytes:
    """Values as JSON; a number that is not finite becomes null."""
    return json.dumps(_finite(value), allow_nan=False, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return _response(encoded(value), status, headers)


def _response(
    content: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    from starlette.responses import Response

    return Response(content, status, headers, media_type="application/json")
