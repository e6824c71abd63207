"""A bare remote behind HTTP: `git http-backend` as a web server runs it, with faults.

The effect always happens on the real remote; a fault is only in what the client hears.
"""

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

RECEIVE = "git-receive-pack"
BACKEND = "http-backend"


class GitServer(ThreadingHTTPServer):
    """Serves the repositories of a folder.

    Attributes:
        folder: Where they are.
        loses: Whether the answer of the next push is lost after it has happened.
        refuses: Whether every request is answered with 503.
        redirects_to: Where every request is sent instead; empty for nowhere.
        password: What the client must know; empty for nothing.
        asked: What was asked for, in order.
    """

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.folder = folder
        self.loses = False
        self.refuses = False
        self.redirects_to = ""
        self.password = ""
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        """Where the folder is found."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that went away."""


class _Request(BaseHTTPRequestHandler):
    server: GitServer

    def do_GET(self) -> None:
        self._serve(b"")

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        self.server.asked.append(f"{self.command} {self.path}")

    def _serve(self, body: bytes) -> None:
        if self.server.refuses:
            self.send_error(503)
            return
        if self.server.redirects_to:
            self.send_response(301)
            self.send_header("Location", f"{self.server.redirects_to}{self.path}")
            self.end_headers()
            return
        if self.server.password and not self._is_known():
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        head, _, answer = self._run(body).partition(b"\r\n\r\n")
        if self.server.loses and self.path.endswith(f"/{RECEIVE}"):
            self.server.loses = False
            self.close_connection = True
            self.connection.close()
            return
        headers = [line.partition(": ") for line in head.decode("ascii").split("\r\n")]
        status = next((value for name, _, value in headers if name == "Status"), "200")
        self.send_response(int(status.split(" ")[0]))
        for name, _, value in headers:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _is_known(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Basic ")
        return base64.b64decode(given).decode("ascii").endswith(f":{self.server.password}")

    def _run(self, body: bytes) -> bytes:
        path, _, query = self.path.partition("?")
        variables = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_USER": "runner",
            "REMOTE_ADDR": "127.0.0.1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
        }
        ran = subprocess.run(
            ["git", BACKEND], env=variables, input=body, check=True, capture_output=True, timeout=60
        )
        return ran.stdout


@contextmanager
def served(folder: Path) -> Iterator[GitServer]:
    """Serve the repositories of a folder for a while."""
    with GitServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
