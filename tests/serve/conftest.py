"""Runs to serve, and an application that answers for them without a network."""

import asyncio
from pathlib import Path

import pytest

from bayesrnn.cli.main import main
from bayesrnn.serve.app import make_app
from bayesrnn.serve.jobs import Jobs
from bayesrnn.serve.served import found_runs
from bayesrnn.tasks import task_of

from ..conftest import TINY

HERE = "http://127.0.0.1:8765"


@pytest.fixture(scope="session")
def texts(tiny_text, tmp_path_factory) -> Path:
    """A folder with two tiny language models, whose draws differ in one; nobody may change it."""
    folder = tmp_path_factory.mktemp("served")
    for method in ("plain", "bbb"):
        options = ["--method", method, "--epochs", "1", "--vocabulary-limit", "800"]
        out = str(folder / method)
        assert main(["train", "lm", "--corpus", str(tiny_text), *TINY, *options, "--out", out]) == 0
    return folder


@pytest.fixture
def asking():
    """Let a coroutine function ask an application for some runs; gives what that returns."""
    httpx = pytest.importorskip("httpx", reason="the extra `dev` brings httpx")
    pytest.importorskip("starlette", reason="the extra `serve` brings starlette")

    def ask(scenario, *paths, address="127.0.0.1", token=None, **jobs):
        async def inside():
            made = Jobs(**jobs)
            app = make_app(found_runs(paths, task_of), made, address, token)
            transport = httpx.ASGITransport(app)
            try:
                async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
                    return await scenario(client)
            finally:
                made.close()

        return asyncio.run(inside())

    return ask
