"""A server on this machine that fails in every way a real one does, and remembers what it was asked."""

import contextlib
import select
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Optional
from urllib.parse import urlsplit


@dataclass
class Served:
    """One file, and how it is served.

    Args:
        cuts: for each request in turn, after how many bytes of the body the connection is cut.
        length: the Content-Length, where it is not the truth.
        chunked: no Content-Length at all.
        pause: seconds between two pieces of `piece` bytes.
        answers: for each request in turn, (status, headers, body) in place of the file.
        then: called with this when a request is over.
    """

    content: bytes
    etag: Optional[str] = '"v1"'
    last_modified: Optional[str] = None
    ranges: bool = True
    cuts: "list[int]" = field(default_factory=list)
    length: Optional[int] = None
    chunked: bool = False
    piece: int = 1 << 16
    pause: float = 0.0
    headers: "dict[str, str]" = field(default_factory=dict)
    answers: "list[tuple[int, dict[str, str], bytes]]" = field(default_factory=list)
    then: "Callable[[Served], None]" = lambda served: None


@dataclass
class Asked:
    path: str
    headers: Any

    @property
    def range(self) -> Optional[str]:
        return self.headers.get("Range")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Loopback"

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = urlsplit(self.path).path  # a proxy is asked for the whole address
        self.server.asked.append(Asked(path, self.headers))
        served = self.server.files.get(path)
        with contextlib.suppress(OSError):  # whoever asked may be gone
            if served is None:
                self._answer(404, {}, b"<html>no such file</html>")
            elif served.answers:
                self._answer(*served.answers.pop(0))
            else:
                self._send(served)
        if served is not None:
            served.then(served)

    def _answer(self, status: int, headers: "dict[str, str]", body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _send(self, served: Served) -> None:
        content, mark = served.content, served.etag or served.last_modified
        first = 0
        if served.ranges and self.headers.get("Range") and self.headers.get("If-Range") in (None, mark):
            first = int(self.headers["Range"].partition("=")[2].rstrip("-"))
        body = content[first:]
        if first and first >= len(content):
            return self._answer(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        marks = {"ETag": served.etag, "Last-Modified": served.last_modified}
        for name, value in {**marks, **served.headers}.items():
            if value is not None:
                self.send_header(name, value)
        if served.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(body) if served.length is None else served.length))
        self.end_headers()
        cut = served.cuts.pop(0) if served.cuts else None
        self._body(body[:cut], served)
        if cut is not None or served.length is not None:
            self.close_connection = True
        elif served.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def _body(self, body: bytes, served: Served) -> None:
        for begin in range(0, len(body), served.piece):
            piece = body[begin : begin + served.piece]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if served.chunked else piece)
            if served.pause and self.server.stopping.wait(served.pause):
                return

    def do_CONNECT(self) -> None:
        """A proxy for https: passes bytes on, both ways."""
        self.server.asked.append(Asked(self.path, self.headers))
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=5) as far:
            self.send_response(200)
            self.end_headers()
            ends = {far: self.connection, self.connection: far}
            with contextlib.suppress(OSError):
                while True:
                    for end in select.select(list(ends), [], [], 5)[0]:
                        content = end.recv(1 << 16)
                        if not content:
                            raise OSError("closed")
                        ends[end].sendall(content)
        self.close_connection = True


class Loopback(ThreadingHTTPServer):
    """`files` by path, `asked` in order. With `context`, it speaks https."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, context: Optional[ssl.SSLContext] = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: "dict[str, Served]" = {}
        self.asked: "list[Asked]" = []
        self.stopping = threading.Event()
        self.context = context
        self.address = f"{'https' if context else 'http'}://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.context:
            with contextlib.suppress(OSError):  # a client that refuses the certificate hangs up
                with self.context.wrap_socket(request, server_side=True) as wrapped:
                    super().finish_request(wrapped, client_address)
            return
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass

    def count(self, path: str) -> int:
        return sum(asked.path == path for asked in self.asked)

    def stop(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()
        self._thread.join()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits for something that another process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
