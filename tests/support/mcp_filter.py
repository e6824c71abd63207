"""Stands between an adapter and a server over stdio, and lets no `initialize` through.

`python -S mcp_filter.py COMMAND...` makes of a server of both eras one that knows only
`server/discover`.
"""

import json
import subprocess
import sys
import threading


def main(command: list[str]) -> None:
    lock = threading.Lock()
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if server.stdin is None or server.stdout is None:
        raise SystemExit("the server has no streams")
    answers = server.stdout

    def say(line: bytes) -> None:
        with lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    def listen() -> None:
        for line in answers:
            say(line)

    threading.Thread(target=listen, daemon=True).start()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "initialize":
            error = {"code": -32601, "message": "Method not found"}
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            say(json.dumps(answer).encode() + b"\n")
        else:
            server.stdin.write(line)
            server.stdin.flush()
    server.stdin.close()
    server.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
