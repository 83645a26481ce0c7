"""`bayesrnn serve`: where the server listens, and until when."""

import secrets
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bayesrnn.errors import ConfigError, MissingExtraError
from bayesrnn.options import CheckedOptions, option
from bayesrnn.progress import say
from bayesrnn.serve.app import make_app
from bayesrnn.serve.guard import is_loopback
from bayesrnn.serve.jobs import Jobs
from bayesrnn.serve.served import TaskOf, found_runs

#: Connections at a time; a page needs a few.
_CONNECTIONS: Final = 64


@dataclass(frozen=True, kw_only=True)
class ServeOptions(CheckedOptions):
    """The runs, and where the page is."""

    runs: tuple[Path, ...] = option(
        (), "folders of runs, folders that hold some, or files of prune --out", positional=True
    )
    host: str = option(
        "127.0.0.1",
        "the address to listen on; another machine can reach one that is not of the loopback, so "
        "that the address of the page then has a secret token",
        metavar="ADDRESS",
    )
    port: int = option(8765, "the port; 0: any that is free", ge=0, le=65535)
    threads: int | None = option(None, "processor threads (default: torch's choice)", gt=0)


def serve(options: ServeOptions, task_of: TaskOf) -> None:
    """Answer until the program is stopped."""
    uvicorn = _uvicorn()
    runs = found_runs(options.runs, task_of)
    token = None if is_loopback(options.host) else secrets.token_urlsafe(24)
    jobs = Jobs()
    app = make_app(runs, jobs, options.host, token)
    listening = _listening(options.host, options.port)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
    )
    with listening:
        address = page_address(listening.getsockname(), token)
        names = ", ".join(run.name for run in runs)
        print(f"{names}: open {address}\nstop with Ctrl+C", flush=True)
        if token is not None:
            say("note: whoever has this address can use the page; nothing on the way is encrypted")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            jobs.close()


def page_address(name: Sequence[Any], token: str | None) -> str:
    """The address of the page, from that of a socket."""
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}/" + ("" if token is None else f"?token={token}")


def _uvicorn() -> Any:
    try:
        import uvicorn
    except ImportError:
        raise MissingExtraError(
            "serving a page needs an extra: pip install 'bayesrnn[serve]'"
        ) from None
    return uvicorn


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens there."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        try:
            if sys.platform != "win32":
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(128)
        except OSError:
            made.close()
            raise
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {reason}; give another --port or --host"
        ) from None
    return made
