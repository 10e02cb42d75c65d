"""A web server that misbehaves on demand."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Request(NamedTuple):
    """What the client asked for, in lower case."""

    path: str
    range: str | None
    if_range: str | None

    @property
    def start(self) -> int:
        """The first byte wanted."""
        return int(self.range[len("bytes=") : -1]) if self.range else 0


class Answer(NamedTuple):
    """What to send; by default Content-Length is true and the connection ends."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    length: int | None = -1
    stall: bool = False


class Server:
    """Answers request n with script(n, request), and remembers the requests."""

    def __init__(self, script: Callable[[int, Request], Answer]):
        self.requests: list[Request] = []
        self.script = script
        self.released = threading.Event()
        self.address = ""


@contextlib.contextmanager
def serving(script: Callable[[int, Request], Answer]) -> Iterator[Server]:
    """Runs a server while the block runs."""
    server = Server(script)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            request = Request(
                self.path, self.headers["Range"], self.headers["If-Range"]
            )
            server.requests.append(request)
            answer = server.script(len(server.requests), request)
            self.send_response(answer.status)
            for name, value in answer.headers:
                self.send_header(name, value)
            if answer.length is not None:
                length = len(answer.body) if answer.length == -1 else answer.length
                self.send_header("Content-Length", str(length))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(answer.body)
                self.wfile.flush()
            if answer.stall:
                server.released.wait(60)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        server.address = f"http://127.0.0.1:{httpd.server_port}"
        thread = threading.Thread(target=httpd.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            httpd.shutdown()
            thread.join()
