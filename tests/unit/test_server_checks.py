"""What a server says of itself becomes a line, with a next move where one is needed."""

from dataclasses import replace

import pytest

from counterfoil.backends import EtcdFacts, EtcdMember, PostgresFacts
from counterfoil.cli.lines import Line, State
from counterfoil.cli.server_checks import etcd_lines, postgres_lines

OK, WARN, FAIL = State.OK, State.WARN, State.FAIL
URL = "postgresql://app@db.example.org/jobs"
ETCD_URL = "etcd://app@e1.example.org/jobs"
SERVER = PostgresFacts(
    name="the database 'jobs' at db.example.org",
    identity=("7", "5", "counterfoil"),
    version=150_005,
    is_standby=False,
    fsync="on",
    full_page_writes="on",
    synchronous_commit="on",
    synchronous_standbys=True,
    clock_ahead_ms=0,
    round_trip_ms=2,
    has_pooler=False,
    is_encrypted=True,
    verifies_server=True,
    role="app",
    owns_schema=False,
    versions={"heads": 1, "store": 1},
)
MEMBER = EtcdMember(name="e1.example.org:2379", version="3.4.23", has_leader=True)
CLUSTER = EtcdFacts(members=(MEMBER,), cluster_size=3, is_encrypted=True, demands_users=True)


def lines_of(facts: PostgresFacts | EtcdFacts, url: str) -> dict[str, Line]:
    if isinstance(facts, EtcdFacts):
        return {line.name: line for line in etcd_lines(url, facts)}
    found = postgres_lines("heads", "heads.url", url, facts, keeps_heads=True)
    return {line.name: line for line in found}


@pytest.mark.parametrize(("facts", "url"), [(SERVER, URL), (CLUSTER, ETCD_URL)])
def test_a_sound_server_needs_nothing(facts: PostgresFacts | EtcdFacts, url: str) -> None:
    lines = lines_of(facts, url).values()
    assert {(line.state, line.mend, line.exit_code) for line in lines} == {(OK, "", 0)}


@pytest.mark.parametrize(
    ("change", "name", "state"),
    [
        pytest.param({"version": 130_018}, "postgresql", FAIL, id="too old"),
        pytest.param({"version": 140_000}, "postgresql", OK, id="old enough"),
        pytest.param({"fsync": "off"}, "durability", FAIL, id="no sync"),
        pytest.param({"full_page_writes": "off"}, "durability", FAIL, id="torn pages"),
        pytest.param({"synchronous_commit": "off"}, "durability", WARN, id="late commits"),
        pytest.param(
            {"synchronous_commit": "local"}, "durability", WARN, id="no wait for a standby"
        ),
        pytest.param(
            {"synchronous_commit": "local", "synchronous_standbys": False},
            "durability",
            OK,
            id="no standby to wait for",
        ),
        pytest.param({"has_pooler": True}, "pooler", OK, id="a pooler is only said"),
        pytest.param({"clock_ahead_ms": 90_000}, "clock", OK, id="a clock is only said"),
        pytest.param({"owns_schema": True}, "role", WARN, id="the owner works"),
        pytest.param({"is_encrypted": False}, "transport", WARN, id="plain text"),
        pytest.param({"verifies_server": False}, "transport", WARN, id="anybody's server"),
    ],
)
def test_a_postgresql_server_is_judged(change: dict[str, object], name: str, state: State) -> None:
    line = lines_of(replace(SERVER, **change), URL)[name]
    assert (line.state, bool(line.mend)) == (state, state is not OK)


@pytest.mark.parametrize(
    ("ahead_ms", "text"),
    [(90_000, "1 min 30 s ahead of"), (-90_000, "1 min 30 s behind"), (900, "reads as this")],
)
def test_the_difference_of_clocks_is_said(ahead_ms: int, text: str) -> None:
    assert text in lines_of(replace(SERVER, clock_ahead_ms=ahead_ms), URL)["clock"].found


def test_the_clock_of_a_server_without_heads_ends_no_lease() -> None:
    found = postgres_lines("checkpoints", "store.url", URL, SERVER, keeps_heads=False)
    assert [line for line in found if line.name == "clock"] == []


def test_a_password_in_a_url_is_warned_of() -> None:
    line = lines_of(SERVER, "postgresql://app:hunter2@db.example.org/jobs")["password"]
    assert (line.state, "hunter2" in line.found + line.mend) == (WARN, False)


@pytest.mark.parametrize("url", ["postgresql://app@localhost/jobs", "postgresql://app@%2Frun/jobs"])
def test_what_stays_on_this_machine_needs_no_encryption(url: str) -> None:
    facts = replace(SERVER, is_encrypted=False, verifies_server=False)
    assert lines_of(facts, url)["transport"].state is OK


@pytest.mark.parametrize(
    ("change", "name", "state"),
    [
        pytest.param({"cluster_size": 1}, "cluster", WARN, id="one member"),
        pytest.param({"cluster_size": 0}, "cluster", OK, id="nobody can say how many"),
        pytest.param({"demands_users": False}, "auth", WARN, id="anybody writes"),
        pytest.param({"demands_users": None}, "auth", OK, id="nobody can say who writes"),
        pytest.param({"is_encrypted": False}, "transport", WARN, id="plain text"),
    ],
)
def test_an_etcd_is_judged(change: dict[str, object], name: str, state: State) -> None:
    line = lines_of(replace(CLUSTER, **change), ETCD_URL)[name]
    assert (line.state, bool(line.mend)) == (state, state is not OK)


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("3.3.27", FAIL),
        ("3.4.0", OK),
        ("3.5.0", FAIL),
        ("3.5.1", FAIL),
        ("3.5.2", FAIL),
        ("3.5.3", OK),
        ("3.5.21", OK),
        ("3.6.0", OK),
    ],
)
def test_releases_of_etcd_that_may_lose_consistency_fail(version: str, state: State) -> None:
    facts = replace(CLUSTER, members=(replace(MEMBER, version=version),))
    assert lines_of(facts, ETCD_URL)["etcd"].state is state


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param("+-", [(OK, 0), (WARN, 0)], id="one is down"),
        pytest.param("--", [(FAIL, 7), (FAIL, 7)], id="all are down"),
        pytest.param("+?", [(OK, 0), (WARN, 0)], id="one has no leader"),
    ],
)
def test_each_endpoint_of_an_etcd_has_a_line(
    members: str, expected: list[tuple[State, int]]
) -> None:
    kinds = {
        "+": MEMBER,
        "-": EtcdMember(name="e2.example.org:2379", trouble="no connection"),
        "?": replace(MEMBER, has_leader=False),
    }
    facts = replace(CLUSTER, members=tuple(kinds[each] for each in members))
    lines = [line for line in etcd_lines(ETCD_URL, facts) if line.name == "etcd"]
    assert [(line.state, line.exit_code) for line in lines] == expected
