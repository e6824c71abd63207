"""Servers that are forked and not started, since starting one takes a second.

As `python -m tests.support.mcp_nursery PLACE FD` a process with one thread forks a real
server for each caller: over the standard streams that it is handed, or over HTTP on a
listener. As `python -S mcp_nursery.py SOCKET TENANT` it is the command that an adapter
starts: it hands its standard streams to a server, and lives as long as that.
"""

import array
import os
import signal
import socket
import sys

PIECE = 200


def relay(path: str, tenant: str) -> None:
    """Hand on our standard streams, and wait for the end of the server."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        fds = array.array("i", [0, 1])
        text = f"{tenant}\n{os.environ.get('TOKEN', '')}\n".encode()
        line.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        for fd in (0, 1):
            os.close(fd)
        line.recv(1)


def end_with_input() -> None:
    os.read(0, 1)
    os._exit(0)


def nursery(place: str, fd: int) -> None:
    """Fork a server for each caller, until who started us ends."""
    import asyncio
    import select
    import threading

    from tests.support import mcp_shop

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=fd) as listener:
        while 0 not in select.select([listener, 0], [], [])[0]:
            line, _ = listener.accept()
            text, fds, _, _ = socket.recv_fds(line, PIECE, 2)
            if os.fork():
                line.close()
                for each in fds:
                    os.close(each)
                continue
            listener.close()
            try:
                if len(fds) == 1:
                    threading.Thread(target=end_with_input, daemon=True).start()
                    line.send(str(os.getpid()).encode())
                    mcp_shop.over_http(place, fds[0])
                tenant, token, _ = text.decode().split("\n")
                os.environ["TOKEN"] = token
                for each, target in zip(fds, (0, 1), strict=True):
                    os.dup2(each, target)
                    os.close(each)
                asyncio.run(mcp_shop.over_stdio(place, tenant))
            finally:
                os._exit(0)


if __name__ == "__main__":
    if sys.argv[2].isdigit():
        nursery(sys.argv[1], int(sys.argv[2]))
    else:
        relay(sys.argv[1], sys.argv[2])
