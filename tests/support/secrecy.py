"""What must not be left behind: a secret in an error, a descriptor in the process."""

import base64
from collections.abc import Iterator
from pathlib import Path


def forms(secret: bytes) -> list[str]:
    """Return the ways in which a secret is written: bytes, hexadecimal, base64."""
    return [repr(secret)[2:-1], secret.hex(), base64.b64encode(secret).decode("ascii")]


def shown(error: BaseException, *, above: str) -> Iterator[str]:
    """Yield what a report of an error may print: text, arguments, local variables.

    Frames of files whose path ends in `above` are left out: they belong to the test,
    which made the secret.
    """
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is None:
            continue
        yield f"{cause} {cause!r} {vars(cause)} {cause.args}"
        trace = cause.__traceback__
        while trace is not None:
            if not trace.tb_frame.f_code.co_filename.endswith(above):
                yield repr(trace.tb_frame.f_locals)
            trace = trace.tb_next
        waiting += [cause.__cause__, cause.__context__]


def leaks(error: BaseException, secret: str, *, above: str) -> list[str]:
    """Return every place in which an error shows `secret`."""
    return [text for text in shown(error, above=above) if secret in text]


def open_descriptors() -> int:
    """Return how many files this process holds open."""
    return len(list(Path("/proc/self/fd").iterdir()))
