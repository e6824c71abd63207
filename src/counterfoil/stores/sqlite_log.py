"""Whether a write-ahead log has lost commits that were acknowledged.

SQLite believes a log up to the first frame whose checksum fails, and takes the rest for
the torn end of a crash. A crash tears at most one commit, the one that was not yet
acknowledged. More of them behind the tear mean that the log was damaged later.

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
    if len(log) < HEADER.size + FRAME.size:
        return False
    frames = [
        FRAME.unpack_from(log, at)
        for at in range(
            HEADER.size, len(log) - FRAME.size - page_bytes + 1, FRAME.size + page_bytes
        )
    ]
    if not frames:
        return False
    # Frames of an older round stay in the file until they are written over; their salts
    # differ from the header's. A damaged header cannot say, so the first frame does.
    salts = HEADER.unpack_from(log)[4:6] if _has_header(log) else frames[0][2:4]
    commits = [frame for frame in frames[believed:] if frame[1] and frame[2:4] == salts]
    return len(commits) > TORN_COMMITS_MAX


def _has_header(log: bytes) -> bool:
    """Return whether the checksum of the header holds."""
    words = HEADER.unpack_from(log)
    order = ">" if words[0] == BIG_ENDIAN_SUMS else "<"
    first, second = 0, 0
    for even, odd in struct.iter_unpack(f"{order}2I", log[:24]):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return bool((first, second) == words[6:])
