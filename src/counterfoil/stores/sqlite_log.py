"""Whether a write-ahead log has lost commits that were acknowledged.

SQLite believes a log up to the first frame whose checksum fails, and takes the rest for
the torn end of a crash. A crash tears at most one commit, the one that was not yet
acknowledged. Two commits in one unbroken chain of checksums behind the tear mean that the
log was damaged later.

Where several writers die in a row, each tears a commit that begins where the one before
did. What stays of an earlier one behind a later one does not continue its chain.

Source:
    https://www.sqlite.org/fileformat2.html, section 4, the write-ahead log.
"""

import struct
from pathlib import Path

HEADER = struct.Struct(">8I")
"""Magic, version, page size, sequence, salt-1, salt-2, checksum-1, checksum-2."""

FRAME = struct.Struct(">6I")
"""Page, pages after the commit or 0, salt-1, salt-2, checksum-1, checksum-2."""

BIG_ENDIAN_SUMS = 0x377F0683
"""Magic of a log whose checksums read words big-endian; one less for the other."""

TORN_COMMITS_MAX = 1


def log_of(path: Path) -> Path:
    """Return where the log of a database file lies."""
    return path.with_name(path.name + "-wal")


def has_lost_commits(log: bytes, *, page_bytes: int, believed: int) -> bool:
    """Return whether commits lie behind the frames that SQLite believes.

    Args:
        log: The whole log.
        page_bytes: Size of a page in this database.
        believed: Number of frames that SQLite reads, counted from the first.
    """
    step = FRAME.size + page_bytes
    starts = range(HEADER.size, len(log) - step + 1, step)
    if not starts:
        return False
    # Frames of an older round stay in the file until they are written over; their salts
    # differ from the header's. A damaged header cannot say, so the first frame does.
    first = FRAME.unpack_from(log, starts[0])
    salts = HEADER.unpack_from(log)[4:6] if _has_header(log) else first[2:4]
    commits, sums = 0, None
    for start in starts[believed:]:
        frame = FRAME.unpack_from(log, start)
        if frame[2:4] != salts:
            commits, sums = 0, None
            continue
        goes_on = sums is not None and _added(log, start, page_bytes, sums) == frame[4:6]
        commits = (commits if goes_on else 0) + bool(frame[1])
        if commits > TORN_COMMITS_MAX:
            return True
        sums = frame[4:6]
    return False


def _added(log: bytes, start: int, page_bytes: int, sums: tuple[int, ...]) -> tuple[int, int]:
    """Return the checksums of a frame that follows one with these."""
    order = _order(log)
    first, second = sums
    page = start + FRAME.size
    for part in (log[start : start + 8], log[page : page + page_bytes]):
        first, second = _summed(part, order, first, second)
    return first, second


def _has_header(log: bytes) -> bool:
    """Return whether the checksum of the header holds."""
    return _summed(log[:24], _order(log), 0, 0) == HEADER.unpack_from(log)[6:]


def _order(log: bytes) -> str:
    return ">" if HEADER.unpack_from(log)[0] == BIG_ENDIAN_SUMS else "<"


def _summed(part: bytes, order: str, first: int, second: int) -> tuple[int, int]:
    for even, odd in struct.iter_unpack(f"{order}2I", part):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
