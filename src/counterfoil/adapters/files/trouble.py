"""What an error of the file system means to a caller when nothing has happened."""

import errno

from counterfoil.core.errors import (
    ContractError,
    CounterfoilError,
    PermissionDeniedError,
    UnavailableError,
)

_FORBIDDEN = (errno.EACCES, errno.EPERM)
_MALFORMED = {
    errno.ENAMETOOLONG: "the path is longer than the file system allows",
    errno.EILSEQ: "the file system cannot spell the path",
    errno.EXDEV: "source and target are on two file systems",
}


def name_of(error: OSError) -> str:
    """Return the kernel's name of an error; it holds no path and no content."""
    return errno.errorcode.get(error.errno or 0, type(error).__name__)


def refusal(error: OSError) -> CounterfoilError:
    """Return the error of the taxonomy for one that came before any effect."""
    if error.errno in _FORBIDDEN:
        return PermissionDeniedError(f"the file system refuses access ({name_of(error)})")
    if error.errno in _MALFORMED:
        return ContractError(f"{_MALFORMED[error.errno]} ({name_of(error)})")
    return UnavailableError(f"the files cannot be used now ({name_of(error)})")
