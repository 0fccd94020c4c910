"""Serves the page of a trace while it is written: `python -m llama_sieve trace --follow FILE`.

The page is served only on the loopback interface, to clients that know the random word in its
address. A request that names another host, comes from another site's page, or is anything but GET
is refused: a trace contains the conversation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import os
import secrets
import stat
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Optional, Sequence, Tuple
from urllib.parse import parse_qsl, urlsplit

from . import _trace

ADDRESS = "127.0.0.1"

MOST = 1 << 20
"""The most bytes of an answer, unless a line is longer."""

LONGEST = 1 << 26
"""The most bytes of a line."""

CONNECTIONS = 32
"""The most connections at once."""

SECONDS = 10
"""The seconds for which a connection may be idle."""

NEXT = "Llama-Sieve-Next"
"""The response header with the place after the returned lines."""


class Emptied(Exception):
    """Raised when the file contains a different trace from before, or none."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A position between two lines of a trace."""

    offset: int = 0
    record: str = ""
    """A digest of the first line, which differs between traces; empty at the beginning."""


def lines(path: str, place: Place) -> Tuple[bytes, Place]:
    """Returns some complete lines of a trace from a place on, and the place after them.

    An incomplete last line is not returned yet. If the file does not exist yet, there are no lines.
    Raises Emptied if the trace was replaced or removed, NoTrace for anything but a trace, and
    OSError."""
    start = place.offset
    try:
        # Without waiting for the writer of a pipe.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        if start > 0:
            raise Emptied from None
        return b"", Place()
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _trace.NoTrace(f"{path}: is no file")
        if status.st_size < start:
            raise Emptied
        first = file.readline(LONGEST)
        record = hashlib.sha256(first).hexdigest()[:16] if first.endswith(b"\n") else ""
        if start > 0 and record != place.record:
            raise Emptied
        file.seek(start)
        found = file.read(MOST)
        while b"\n" not in found and len(found) < LONGEST:
            more = file.read(MOST)
            if not more:
                break
            found += more
    end = found.rfind(b"\n") + 1
    if end == 0 and len(found) >= LONGEST:
        raise _trace.NoTrace(f"{path}: is no trace: a line of it does not end")
    if start == 0 and end > 0:
        _trace.check(path, first.decode(errors="replace"))
    return found[:end], Place(start + end, record)


class Server(ThreadingHTTPServer):
    """Serves the page of one trace, or of two side by side."""

    daemon_threads = True

    def __init__(self, paths: Sequence[str], port: int = 0) -> None:
        self.paths = list(paths)
        self.word = secrets.token_urlsafe(24)
        self.page, self.policy = _trace.following(paths)
        self._room = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__((ADDRESS, port), Handler)

    @property
    def address(self) -> str:
        """The address of the page, with its random word."""
        return f"http://{ADDRESS}:{self.server_port}/{self.word}/"

    def process_request(self, request, client_address) -> None:  # type: ignore[no-untyped-def]
        """Starts a thread for a connection, unless there are too many."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address) -> None:  # type: ignore[no-untyped-def]
        """Answers the request of a connection, and then makes room for another one."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request, client_address) -> None:  # type: ignore[no-untyped-def]
        """Ignores all errors, such as that of a client that has disconnected."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    timeout = SECONDS

    def version_string(self) -> str:
        """Returns the server name in responses."""
        return "llama-sieve"

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: a line would contain the random word, and the client's request."""

    def send_error(
        self, code: int, message: Optional[str] = None, explain: Optional[str] = None
    ) -> None:
        """Answers invalid requests, and all methods except GET, without a body."""
        self._answer(405 if code == 501 else code, b"", "text/plain")

    def do_GET(self) -> None:
        """Answers with the page, or with the next lines."""
        if not self._is_own():
            return self._answer(403, b"", "text/plain")
        split = urlsplit(self.path)
        start = f"/{self.server.word}/"
        given = split.path[: len(start)].encode(errors="replace")
        if not hmac.compare_digest(given, start.encode()):
            return self._answer(404, b"", "text/plain")
        rest = split.path[len(start) :]
        if rest == "" and split.query == "":
            return self._answer(200, self.server.page, "text/html")
        if rest == "lines":
            return self._lines(split.query)
        self._answer(404, b"", "text/plain")

    def _is_own(self) -> bool:
        """Returns True for a request to this address, from this page or without an origin."""
        host = f"{ADDRESS}:{self.server.server_port}"
        own = {
            "Host": [host],
            "Origin": [f"http://{host}"],
            "Sec-Fetch-Site": ["none", "same-origin"],
        }
        for name, allowed in own.items():
            given = self.headers.get_all(name, [])
            if len(given) > 1 or not set(given) <= set(allowed):
                return False
        return "Host" in self.headers

    def _lines(self, query: str) -> None:
        place = _place(query, len(self.server.paths))
        if place is None:
            return self._answer(400, b"", "text/plain")
        run, start = place
        try:
            text, end = lines(self.server.paths[run], start)
        except Emptied:
            return self._answer(410, b"", "text/plain")
        except (_trace.NoTrace, OSError) as error:
            return self._answer(422, str(error).encode(errors="replace"), "text/plain")
        self._answer(200, text, "text/plain", end)

    def _answer(self, code: int, body: bytes, kind: str, end: Optional[Place] = None) -> None:
        self.send_response(code)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": self.server.policy,
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            "Connection": "close",
        }
        if end is not None:
            headers[NEXT] = f"{end.offset} {end.record}"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        if self.command == "GET":
            self.wfile.write(body)


def _place(query: str, runs: int) -> Optional[Tuple[int, Place]]:
    """Reads `run=0&from=123&of=DIGEST`; None for anything else."""
    given = dict(parse_qsl(query))
    numbers = [given.get(name, "") for name in ("run", "from")]
    if not all(text.isascii() and text.isdigit() and len(text) < 16 for text in numbers):
        return None
    run, start = map(int, numbers)
    return (run, Place(start, given.get("of", ""))) if run < runs else None


def serve(paths: Sequence[str]) -> None:
    """Serves the page until it is interrupted, and prints its address first."""
    with Server(paths) as server, contextlib.suppress(KeyboardInterrupt):
        print(server.address, flush=True)
        server.serve_forever()
