"""What is known of the requests of one connection: which left, and which were turned away.

A request that was given up before it left never leaves. Everything here happens in one
thread.
"""

from dataclasses import dataclass, field

MESSAGE_BYTES_MAX = 1024 * 1024
"""One message of a server, and all that it answers to one request."""


@dataclass(kw_only=True, slots=True)
class Wire:
    """The requests of one connection, by their ids.

    Attributes:
        sent: Those of which a byte may have left.
        given_up: Those that must not leave any more.
        turned_away: HTTP status of those that were refused before any server read them.
    """

    sent: set[str] = field(default_factory=set[str])
    given_up: set[str] = field(default_factory=set[str])
    turned_away: dict[str, int] = field(default_factory=dict[str, int])

    def leaves(self, request_id: str) -> bool:
        """Return whether a request may leave, and note that it does."""
        if request_id in self.given_up:
            return False
        self.sent.add(request_id)
        return True

    def give_up(self, request_id: str) -> bool:
        """Keep a request from leaving, and return whether it may have left before."""
        self.given_up.add(request_id)
        return request_id in self.sent
