"""What stores say of themselves, for people; nothing here is ever decided by."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PostgresFacts:
    """What a PostgreSQL server says of itself and of our schema.

    Attributes:
        name: The database, for people.
        identity: Cluster, database and schema: equal where two urls name one place.
        version: Such as 150005 for 15.5.
        is_standby: Whether it replays another server.
        fsync: The setting, "on" or "off".
        full_page_writes: The setting, "on" or "off".
        synchronous_commit: The setting, as sessions of this role have it.
        synchronous_standbys: Whether commits wait for a standby.
        clock_ahead_ms: Its clock, less this machine's; negative when it is behind.
        round_trip_ms: How long the answer took: half of it is in doubt.
        has_pooler: Whether something between us and the server shares connections.
        is_encrypted: Whether the connection is.
        verifies_server: Whether the url demands that the server's name is verified.
        role: Name of the role that is connected.
        owns_schema: Whether that role may change the tables themselves.
        versions: Version of each part of our tables, by name.
    """

    name: str
    identity: tuple[str, str, str]
    version: int
    is_standby: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    synchronous_standbys: bool
    clock_ahead_ms: int
    round_trip_ms: int
    has_pooler: bool
    is_encrypted: bool
    verifies_server: bool
    role: str
    owns_schema: bool
    versions: dict[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class EtcdMember:
    """What one endpoint says.

    Attributes:
        name: Host and port.
        version: Such as "3.4.23"; empty when it does not answer.
        trouble: Why it does not answer; empty when it does.
        has_leader: Whether it knows a leader.
    """

    name: str
    version: str = ""
    trouble: str = ""
    has_leader: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class EtcdFacts:
    """What an etcd cluster says of itself.

    Attributes:
        members: The endpoints of the url, in its order.
        cluster_size: Members of the cluster; 0 when it was not told.
        is_encrypted: Whether we talk TLS.
        demands_users: Whether it wants to know who asks; None when nobody can say.
    """

    members: tuple[EtcdMember, ...]
    cluster_size: int
    is_encrypted: bool
    demands_users: bool | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """What became of the room that dropped rows had.

    Attributes:
        size_bytes: Size of the store after it.
        given_back_bytes: What the file system got back.
        spare_bytes: What the store keeps, and fills again before it grows.
        note: Why there is no more to say, or what happens by itself; one sentence or empty.
    """

    size_bytes: int = 0
    given_back_bytes: int = 0
    spare_bytes: int = 0
    note: str = ""
