"""What `doctor` says of a PostgreSQL server or an etcd cluster, by what it says of itself."""

from collections.abc import Iterator

from counterfoil.backends import EtcdFacts, EtcdMember, PostgresFacts
from counterfoil.cli.lines import Line, failed, ok, unfit, warned
from counterfoil.cli.screen import duration
from counterfoil.core.errors import UnavailableError
from counterfoil.urls import has_password, is_on_this_machine

POSTGRESQL_MIN = 140_000
"""Oldest PostgreSQL that our tables and functions are kept for."""

ETCD_MIN = (3, 4)
ETCD_UNSOUND = ((3, 5, 0), (3, 5, 1), (3, 5, 2))
"""Releases of etcd whose members may come to differ after a crash, by its own warning."""

UPGRADE_ETCD = "upgrade etcd to 3.5.3 or later, or stay with 3.4"
NEAR_MS = 1_000
"""Difference of two clocks that nobody needs to read."""


def postgres_lines(
    port: str, field: str, url: str, facts: PostgresFacts, *, keeps_heads: bool
) -> Iterator[Line]:
    """Yield what there is to say of a PostgreSQL server.

    Args:
        port: What lies there, for people.
        field: The setting that names it.
        url: Its url.
        facts: What it says.
        keeps_heads: Whether leases end by its clock.
    """
    yield _postgres_version(port, facts)
    yield _durability(port, facts)
    if keeps_heads:
        yield ok("clock", f"leases end by the server's clock, which reads {_clock(facts)} this one")
    yield _pooler(port, facts)
    yield _role(port, facts)
    yield _postgres_transport(port, url, facts)
    yield from _password(field, url)


def _postgres_version(port: str, facts: PostgresFacts) -> Line:
    version = f"{facts.version // 10_000}.{facts.version % 10_000}"
    if facts.version < POSTGRESQL_MIN:
        return unfit("postgresql", f"{port}: version {version} is too old", "use 14 or later")
    tables = ", ".join(f"{name} {number}" for name, number in facts.versions.items()) or "none"
    return ok("postgresql", f"{port}: version {version}, {facts.name}; tables: {tables}")


def _durability(port: str, facts: PostgresFacts) -> Line:
    settings = (
        f"fsync {facts.fsync}, full_page_writes {facts.full_page_writes}, "
        f"synchronous_commit {facts.synchronous_commit}"
    )
    if {facts.fsync, facts.full_page_writes} != {"on"}:
        return unfit(
            "durability",
            f"{port}: {settings}; a crash of the server loses commits",
            "set fsync and full_page_writes to on in postgresql.conf, and start it again",
        )
    if facts.synchronous_commit == "off":
        return warned(
            "durability",
            f"{port}: {settings}; our own writes turn it on, each for itself",
            "set synchronous_commit to on for the role, so that nothing rests on that",
        )
    if facts.synchronous_standbys and facts.synchronous_commit == "local":
        return warned(
            "durability",
            f"{port}: {settings}; standbys are named, and commits wait for none",
            "set synchronous_commit to on for the role",
        )
    waits = "wait for a standby" if facts.synchronous_standbys else "wait for no standby"
    return ok("durability", f"{port}: {settings}; commits {waits}")


def _clock(facts: PostgresFacts) -> str:
    ahead_ms = facts.clock_ahead_ms
    if abs(ahead_ms) <= NEAR_MS + facts.round_trip_ms:
        return "as"
    return f"{duration(abs(ahead_ms))} {'ahead of' if ahead_ms > 0 else 'behind'}"


def _pooler(port: str, facts: PostgresFacts) -> Line:
    if facts.has_pooler:
        return ok(
            "pooler",
            f"{port}: a pooler lends the connections, so workers look for runs now and then",
        )
    return ok("pooler", f"{port}: none, connections lead to the server itself")


def _role(port: str, facts: PostgresFacts) -> Line:
    if facts.owns_schema:
        return warned(
            "role",
            f"{port}: role {facts.role} may change tables by hand, past the rules in them",
            "run `counterfoil init --worker ROLE` as the owner, and connect workers as ROLE",
        )
    return ok("role", f"{port}: role {facts.role} may call what workers need, and owns nothing")


def _postgres_transport(port: str, url: str, facts: PostgresFacts) -> Line:
    if is_on_this_machine(url):
        return ok("transport", f"{port}: the connection stays on this machine")
    if not facts.is_encrypted:
        return warned(
            "transport",
            f"{port}: the connection is not encrypted",
            "turn ssl on at the server, and add sslmode=verify-full to the url",
        )
    if not facts.verifies_server:
        return warned(
            "transport",
            f"{port}: the connection is encrypted, and anybody may pose as the server",
            "add sslmode=verify-full and sslrootcert to the url",
        )
    return ok("transport", f"{port}: encrypted, and the server's name is verified")


def _password(field: str, url: str) -> Iterator[Line]:
    if has_password(url):
        yield warned(
            "password",
            f"{field} holds a password, which whoever reads the settings can read",
            "take it out of the url, and give it in PGPASSWORD, ~/.pgpass or a service file",
        )


def etcd_lines(url: str, facts: EtcdFacts) -> Iterator[Line]:
    """Yield what there is to say of an etcd cluster."""
    answering = sum(not member.trouble for member in facts.members)
    for member in facts.members:
        yield _member(member, others_answer=answering > 0)
    yield _cluster(facts)
    yield _users(url, facts)
    yield _etcd_transport(url, facts)


def _member(member: EtcdMember, *, others_answer: bool) -> Line:
    if member.trouble:
        found = f"{member.name} does not answer: {member.trouble}"
        if others_answer:
            return warned("etcd", found, "bring the member back, or take it out of heads.url")
        return failed(
            "etcd", UnavailableError(found, move="check heads.url, and that the cluster runs")
        )
    numbers = tuple(int(part) for part in member.version.split(".") if part.isdigit())
    found = f"{member.name}: version {member.version}"
    if numbers[:2] < ETCD_MIN:
        return unfit("etcd", f"{found} is too old", UPGRADE_ETCD)
    if numbers in ETCD_UNSOUND:
        return unfit("etcd", f"{found}, whose members may come to differ", UPGRADE_ETCD)
    if not member.has_leader:
        return warned("etcd", f"{found}, without a leader", "bring back most of its members")
    return ok("etcd", found)


def _cluster(facts: EtcdFacts) -> Line:
    size = facts.cluster_size
    if size == 1:
        return warned(
            "cluster",
            "one member: no run goes on while it is down, and heads are lost with its disk",
            "run three members on three machines",
        )
    if size == 0:
        return ok("cluster", "the cluster does not say how many members it has")
    return ok("cluster", f"{size} members, of which {(size - 1) // 2} may fail")


def _users(url: str, facts: EtcdFacts) -> Line:
    if facts.demands_users is None:
        return ok("auth", "the cluster does not say whether it asks who writes")
    if facts.demands_users:
        return ok("auth", "the cluster asks who writes")
    return warned(
        "auth",
        "whoever reaches the cluster may change heads",
        "make a user that may write below the prefix alone, and turn auth on",
    )


def _etcd_transport(url: str, facts: EtcdFacts) -> Line:
    if is_on_this_machine(url):
        return ok("transport", "heads: the connection stays on this machine")
    if facts.is_encrypted:
        return ok("transport", "heads: encrypted, and the server's name is verified")
    return warned(
        "transport", "heads: the connection is not encrypted", "add tls=true and ca to heads.url"
    )
