"""A proxy before an S3 server that spoils one request in twenty: resets it, slows it, cuts its answer, or says 503.

Half of the resets come after the server has done what was asked, as a lost answer does: what is sent again must then be
harmless.
"""

from __future__ import annotations

import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("reset before", "reset after", "slow", "cut", "503")
_SLOW_DOWN = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>'
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "date", "server"}


class FlakyS3:
    """Stands between a client and `upstream` (host, port). `rate` is the share of requests that are spoilt."""

    def __init__(self, upstream: tuple[str, int], *, rate: float, seed: int) -> None:
        self.upstream, self.rate = upstream, rate
        self.faults: Counter[str] = Counter()
        self.requests = 0
        self._pick, self._lock = random.Random(seed), threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where clients ask."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def choose(self) -> str:
        """Return the fault of the next request; "" for none."""
        with self._lock:
            self.requests += 1
            fault = self._pick.choice(FAULTS) if self._pick.random() < self.rate else ""
            self.faults[fault] += bool(fault)
            return fault

    def stop(self) -> None:
        """Close the proxy."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FlakyS3

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.proxy.choose()
        if fault == "reset before":
            self._reset()
            return
        if fault == "503":
            self._answer(503, {"Content-Type": "application/xml"}, _SLOW_DOWN)
            return
        if fault == "slow":
            time.sleep(0.5)
        upstream = http.client.HTTPConnection(*self.proxy.upstream)
        upstream.request(self.command, self.path, body, {**self.headers, "Connection": "close"})
        got = upstream.getresponse()
        content = got.read()
        upstream.close()
        if fault == "reset after":
            self._reset()
        elif fault == "cut" and len(content) > 1:
            self._answer(got.status, dict(got.getheaders()), content, sent=len(content) // 2)
            self._reset()
        else:
            self._answer(got.status, dict(got.getheaders()), content)

    def _answer(self, status: int, headers: dict[str, str], content: bytes, *, sent: int | None = None) -> None:
        self.send_response(status)
        length = headers.get("Content-Length", str(len(content)))  # of HEAD, that of the object
        for name, value in headers.items():
            if name.lower() not in {*_HOP_BY_HOP, "content-length"}:
                self.send_header(name, value)
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:sent])
            self.wfile.flush()

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward  # noqa: N815 - http.server looks them up by these names

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""

    def handle_one_request(self) -> None:
        """Handle one request; a connection that was reset ends without a word."""
        try:
            super().handle_one_request()
        except (OSError, ValueError):
            self.close_connection = True
