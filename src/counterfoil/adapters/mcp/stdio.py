"""A server as a child process: its messages, one a line, and its end.

The SDK's own transport hands on variables that nobody named, reads lines of any length
and leaves what a server started; this one does none of these.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest
from mcp.types.jsonrpc import jsonrpc_message_adapter

from counterfoil.adapters.mcp.wire import MESSAGE_BYTES_MAX, Wire
from counterfoil.core.errors import UnavailableError

POLLS, POLL_SECONDS = 100, 0.01
"""A second, from the end of its input to the end of a server that does not end by itself."""

CHATTER_LINES_MAX = 100
"""Lines that are no messages: a greeting is forgiven, and no log on the wrong stream."""

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Outgoing = MemoryObjectReceiveStream[SessionMessage]
Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@asynccontextmanager
async def stdio_streams(
    command: tuple[str, ...], environment: dict[str, str], folder: str, wire: Wire
) -> AsyncGenerator[Streams]:
    """Start a server, exchange messages with it, and end it with all that it started.

    Raises:
        UnavailableError: It cannot be started.
    """
    child = _started(command, environment, folder)
    try:
        reader, listening, writer = await _pipes(child)
        arriving, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        write, leaving = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_read, reader, arriving)
            tasks.start_soon(_write, writer, leaving, arriving, wire)
            try:
                yield read, write
            finally:
                tasks.cancel_scope.cancel()
                for stream in (read, write):
                    stream.close()
                listening.close()
                writer.close()
    finally:
        with anyio.CancelScope(shield=True):
            await _ended(child)


def _started(
    command: tuple[str, ...], environment: dict[str, str], folder: str
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=Path(folder) if folder else None,
            env=environment,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        name = Path(command[0]).name
        raise UnavailableError(
            f"the server {name:.80} cannot be started: {type(error).__name__}"
        ) from error


async def _pipes(
    child: subprocess.Popen[bytes],
) -> tuple[asyncio.StreamReader, asyncio.ReadTransport, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MESSAGE_BYTES_MAX)
    listening, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), child.stdout
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, child.stdin
    )
    return reader, listening, asyncio.StreamWriter(transport, protocol, None, loop)


async def _read(reader: asyncio.StreamReader, arriving: Incoming) -> None:
    """Hand on one message a line; a line beyond the bound is the end, and too much chatter."""
    chatter = 0
    async with arriving:
        with suppress(
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            anyio.BrokenResourceError,
            OSError,
        ):
            while chatter <= CHATTER_LINES_MAX:
                line = await reader.readuntil(b"\n")
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    chatter += 1
                    continue
                await arriving.send(SessionMessage(message))


async def _write(
    writer: asyncio.StreamWriter, leaving: Outgoing, arriving: Incoming, wire: Wire
) -> None:
    async with leaving:
        try:
            async for sent in leaving:
                message = sent.message
                if isinstance(message, JSONRPCRequest) and not wire.leaves(str(message.id)):
                    continue
                text = message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(f"{text}\n".encode())
                await writer.drain()
        except OSError:
            await arriving.aclose()


async def _ended(child: subprocess.Popen[bytes]) -> None:
    """End a server whose input has ended, and its process group.

    It is not waited for before its group was killed, so that its number is still its own.
    """
    loop = asyncio.get_running_loop()
    for _ in range(POLLS):
        if _has_ended(child):
            break
        await asyncio.sleep(POLL_SECONDS)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    await loop.run_in_executor(None, child.wait)


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
