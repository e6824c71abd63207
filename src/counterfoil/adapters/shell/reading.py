"""Commands that change nothing: reads and verifications, each in a folder for its time."""

import os
import time
from contextlib import suppress

from counterfoil.adapters.shell.command import Command, patience_ms
from counterfoil.adapters.shell.kinds import ARGV, FOLDER
from counterfoil.adapters.shell.records import Seen, Standing, look
from counterfoil.adapters.shell.settling import drop_folder, result_of
from counterfoil.adapters.shell.site import READS, Site, refusal, working_folder
from counterfoil.adapters.shell.starting import make_place, new_token, start
from counterfoil.adapters.shell.waiting import monotonic_ms, wait
from counterfoil.core.errors import UnavailableError, UnknownOutcomeError
from counterfoil.core.words import Json

KEPT_SECONDS = 86_400
"""Age of what readers that were killed have left behind before it is cleared away."""


def read(site: Site, command: Command, arguments: dict[str, Json]) -> dict[str, Json]:
    """Run a command that changes nothing to its end, and return what it told.

    Raises:
        ContractError, PermissionDeniedError: As `start`.
        UnavailableError: It did not come to an end that is known.
    """
    token = new_token()
    try:
        with working_folder(site, arguments[FOLDER]) as folder:
            place = make_place(site, READS, token)
            try:
                lock = os.dup(place.folder)  # a read needs no lock: nothing else is decided by it
                try:
                    start(
                        site,
                        command,
                        arguments[ARGV],
                        place=place,
                        folder=folder,
                        token=token,
                        lock=lock,
                    )
                finally:
                    os.close(lock)
                seen = _watched_to_the_end(site, command, place.folder)
                if seen.exited is None or seen.standing is not Standing.ENDED:
                    raise UnavailableError(f"the command told nothing: {seen.why or 'it is gone'}")
                return result_of(seen.exited, place.folder, command.accepted)
            finally:
                os.close(place.folder)
    except OSError as error:
        raise refusal(error) from error
    except UnknownOutcomeError as error:
        raise UnavailableError(error.message) from error
    finally:
        drop_folder(site, READS, token)


def _watched_to_the_end(site: Site, command: Command, folder: int) -> Seen:
    give_up_at_ms = monotonic_ms() + patience_ms(command)
    while True:
        seen = look(folder, site.pause)
        if seen.standing is not Standing.RUNS:
            return seen
        if not wait(seen, give_up_at_ms, site.pause):
            look(folder, site.pause, is_stopping=True)
            raise UnavailableError("the command did not end in its time")


def sweep(site: Site) -> None:
    """Clear away what readers left behind that were killed long ago."""
    with suppress(OSError):
        for path in (site.place / READS).iterdir():
            if time.time() - path.stat().st_mtime > KEPT_SECONDS:
                drop_folder(site, READS, path.name)
