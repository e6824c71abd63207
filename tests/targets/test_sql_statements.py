"""Planners name statements and give values: what is checked, expected, refused and returned."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from msgspec.structs import replace

from counterfoil.adapters.sql import Dbapi, Statement, install_sql, open_sql
from counterfoil.core.errors import (
    ConfigError,
    ContractError,
    PermissionDeniedError,
    RefusedError,
    StaleObservationError,
)
from counterfoil.core.receipt import Answer
from counterfoil.core.words import Key, Risk, RunId
from counterfoil.local.postgres import LocalPostgres
from tests.support.postgres import fresh_database
from tests.support.sql_bench import NAMES, NOW_MS, SCOPE, Place, credited, noted, opened
from tests.support.sql_scene import KEY, PAYMENT, RUN, asked, on_record, paid, raised, read

pytest_plugins = ["tests.support.postgres"]

Opens = Callable[[str], Place]


@pytest.fixture
def opens(tmp_path: Path, request: pytest.FixtureRequest) -> Opens:
    """Return fresh places, closed with the test."""

    def made(name: str) -> Place:
        context = opened(name, tmp_path, lambda: request.getfixturevalue("postgres"))
        place = context.__enter__()
        request.addfinalizer(lambda: context.__exit__(None, None, None))
        return place

    return made


def with_statement(place: Place, text: str, **options: Any) -> Any:
    """Open an adapter with one more statement, `extra`."""
    known = {"extra": Statement(text=place.sql(text), **options)}
    scope = {"statements": ("extra",)}
    return place.adapter(statements=known, watch=""), scope


# ---------------------------------------------------------------- expectations


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([credited(10, "nobody", rows=1)], id="no row is met"),
        pytest.param([noted("a"), credited(10, rows=2)], id="one row is met and not two"),
        pytest.param(
            [noted("a"), credited(10, returning=[{"balance": 120}])], id="another row is returned"
        ),
        pytest.param([noted("a"), credited(10, returning=[])], id="a row is returned and not none"),
        pytest.param(
            [noted("a"), {"name": "balance", "parameters": {"name": "ann"}, "returning": [{}]}],
            id="a query sees another row",
        ),
        pytest.param([noted("a"), noted("b"), {**noted("c"), "rows": 0}], id="the last one fails"),
    ],
)
def test_an_expectation_that_does_not_hold_undoes_everything(
    calls: list[Any], name: str, opens: Opens
) -> None:
    place = opens(name)
    adapter = place.adapter()
    sent = asked(adapter, *calls)
    assert isinstance(raised(lambda: adapter.execute(sent)), StaleObservationError)
    assert paid(place) == (0, 0)
    assert on_record(adapter).answer is Answer.ABSENT


@pytest.mark.parametrize("name", NAMES)
def test_an_expectation_that_holds_is_in_the_receipt(name: str, opens: Opens) -> None:
    place = opens(name)
    adapter = place.adapter()
    calls = (credited(10, rows=1, returning=[{"balance": 110}]), noted("paid"))
    receipt = adapter.execute(asked(adapter, *calls))
    assert receipt.result == {
        "statements": [
            {"name": "credit", "rows": 1, "returned": [{"balance": 110}]},
            {"name": "note", "rows": 1},
        ]
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_constraint_refuses_and_no_value_is_told(name: str, opens: Opens) -> None:
    place = opens(name)
    adapter = place.adapter()
    sent = asked(adapter, noted("a"), credited(-4_711))
    error = raised(lambda: adapter.execute(sent))
    assert isinstance(error, RefusedError)
    assert "4711" not in str(error)
    assert paid(place) == (0, 0)


def test_a_deferred_constraint_refuses_at_commit_and_nothing_happens(opens: Opens) -> None:
    """The server itself answers COMMIT with no, so that is known and not unknown."""
    place = opens("postgresql")
    place.do(
        "ALTER TABLE {schema}note ADD CONSTRAINT known FOREIGN KEY (author) "
        "REFERENCES {schema}account (name) DEFERRABLE INITIALLY DEFERRED"
    )
    adapter = place.adapter()
    sent = asked(adapter, *PAYMENT)
    assert isinstance(raised(lambda: adapter.execute(sent)), RefusedError)
    assert paid(place) == (0, 0)


# ---------------------------------------------------------------- what planners may give


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=f"T26 {number}")
        for number, text in enumerate(
            (
                "'); DELETE FROM note; --",
                "a' OR '1'='1",
                'b"; DROP TABLE account; --',
                "100%s %(line)s :line ? $1 {schema}",
                "../../etc/passwd",
                "line\nend\ttab\r",
                "\\'; SELECT 1",
                "ä€😀 \u202e",
                "x" * 190,
            )
        )
    ],
)
def test_text_is_stored_as_it_is(text: str, name: str, opens: Opens) -> None:
    place = opens(name)
    adapter = place.adapter()
    call = {"name": "note", "parameters": {"line": text}}
    adapter.execute(asked(adapter, call))
    assert place.lines == [text]
    assert read(adapter, "query", statement="notes")["rows"] == [{"line": text}]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "odd",
    [pytest.param("'; DROP TABLE note; --", id="T26 quote"), pytest.param("%s:a?", id="T26 marks")],
)
def test_names_of_runs_and_keys_are_data(odd: str, name: str, opens: Opens) -> None:
    place = opens(name)
    adapter = place.adapter()
    sent = asked(adapter, *PAYMENT, key=Key(odd), run_id=RunId(f"run {odd}"))
    adapter.execute(sent)
    answer = adapter.look_up(sent.run_id, sent.key, sent.kind)
    assert answer.receipt is not None
    assert (answer.receipt.key, answer.receipt.run_id) == (odd, f"run {odd}")
    assert paid(place) == (1, 1)


def test_a_statement_outside_the_scope_is_refused_by_the_target_too(opens: Opens) -> None:
    """[T14] Whoever skips the engine's door meets this one, and nothing is written."""
    place = opens("sqlite")
    adapter = place.adapter()
    sent = asked(adapter, *PAYMENT, scope={"statements": ("note",)})
    assert isinstance(raised(lambda: adapter.execute(sent)), PermissionDeniedError)
    assert paid(place) == (0, 0)
    assert place.do("SELECT count(*) FROM counterfoil_fence") == [(0,)]


@pytest.mark.parametrize("name", NAMES)
def test_a_query_that_writes_leaves_nothing(name: str, opens: Opens) -> None:
    """It was registered as one that reads, and its transaction only reads."""
    text = "WITH a AS (SELECT 'sly' AS line) INSERT INTO {schema}note SELECT line, 'run' FROM a"
    place = opens(name)
    if name == "dbapi":
        with pytest.raises(ConfigError):
            with_statement(place, text, is_query=True)
        return
    adapter, scope = with_statement(place, text, is_query=True)
    operation = asked(adapter, scope=scope)
    kind, arguments = "sql.query", {"statement": "extra"}
    query = replace(operation, kind=kind, arguments=arguments)
    assert isinstance(raised(lambda: adapter.execute(query)), ConfigError)
    assert place.lines == []


# ---------------------------------------------------------------- bounds of answers


@pytest.mark.parametrize("name", NAMES)
def test_a_long_answer_is_cut_and_says_so(name: str, opens: Opens) -> None:
    """[T30] Rows by their number, and by their size."""
    place = opens(name)
    for _ in range(3):
        place.do("INSERT INTO {schema}note VALUES ('" + "y" * 150 + "', 'somebody')")
    for _ in range(10):
        place.do("INSERT INTO {schema}note SELECT line, author FROM {schema}note")
    answer = read(place.adapter(watch=""), "query", statement="notes")
    assert answer["has_more"]
    assert 300 < len(answer["rows"]) < 1_000


@pytest.mark.parametrize("name", NAMES)
def test_a_change_that_returns_too_much_is_undone(name: str, opens: Opens) -> None:
    place = opens(name)
    place.note("before")
    for _ in range(11):
        place.do("INSERT INTO {schema}note SELECT line, author FROM {schema}note")
    text = "UPDATE {schema}note SET line = 'after' RETURNING line"
    adapter, scope = with_statement(place, text)
    sent = asked(adapter, {"name": "extra"}, scope=scope)
    assert isinstance(raised(lambda: adapter.execute(sent)), RefusedError)
    assert set(place.lines) == {"before"}


@pytest.mark.parametrize("name", NAMES)
def test_a_check_passes_on_exactly_the_expected_rows(name: str, opens: Opens) -> None:
    place = opens(name)
    place.note("b")
    place.note("a")
    adapter = place.adapter()
    expectations: list[Any] = [
        [{"line": "a"}, {"line": "b"}],
        [{"line": "b"}, {"line": "a"}],
        [{"line": "a"}],
        [],
    ]
    answers = [read(adapter, "check", statement="notes", expected=rows) for rows in expectations]
    assert [answer["passed"] for answer in answers] == [True, False, False, False]


VALUES = """
    SELECT 12345.670::numeric AS decimal, 5.0::float8 AS whole, 0.5::float8 AS half,
        'NaN'::float8 AS none, 9007199254740993 AS big, true AS yes, NULL AS nothing,
        timestamptz '2026-01-02 03:04:05+02' AS moment, date '2026-01-02' AS day,
        interval '90 seconds' AS span, '\\x00ff'::bytea AS raw, ARRAY[1, 2] AS list,
        '{"a": [1.0]}'::jsonb AS document,
        '6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid AS name, 50 %% 7 AS rest,
        inet '10.0.0.1/8' AS place, int4range(1, 5) AS span_of_numbers
"""


def test_values_of_a_database_become_json(opens: Opens) -> None:
    place = opens("postgresql")
    known = {"extra": Statement(text=VALUES, is_query=True)}
    adapter, scope = place.adapter(statements=known, watch=""), {"statements": ("extra",)}
    operation = asked(adapter, {"name": "extra"}, scope=scope)
    result = adapter.execute(operation).result["statements"][0]["returned"][0]
    mark = next(name for name in result["raw"] if name != "base64")
    assert result == {
        "decimal": "12345.670",
        "whole": 5,
        "half": 0.5,
        "none": {mark: "float", "text": "nan"},
        "big": {mark: "integer", "hex": "0x20000000000001"},
        "yes": True,
        "nothing": None,
        "moment": "2026-01-02T01:04:05Z",
        "day": "2026-01-02",
        "span": 90,
        "raw": {mark: "bytes", "base64": "AP8="},
        "list": [1, 2],
        "document": {"a": [1]},
        "name": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
        "rest": 1,
        "place": "10.0.0.1/8",
        "span_of_numbers": "[1, 5)",
    }
    assert adapter.look_up(RUN, KEY, "sql.execute").receipt.result == {
        "statements": [{"name": "extra", "rows": 1, "returned": [result]}]
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_type_of_parameter_is_bound(name: str, opens: Opens) -> None:
    place = opens(name)
    raw = "bytea" if name == "postgresql" else "blob"
    place.do(
        "CREATE TABLE {schema}kinds (i bigint, f double precision, s text, n text, r RAW)".replace(
            "RAW", raw
        )
    )
    adapter, scope = with_statement(
        place,
        "INSERT INTO {schema}kinds VALUES (:i, :f, :s, :n, :r)",
        parameters={"i": int, "f": float, "s": str, "n": str | None, "r": bytes},
    )
    given = {"i": 2**53 - 1, "f": 5, "s": "five", "n": None, "r": b"\0\xff"}
    spec = adapter.kinds[0]
    arguments = spec.normalise({"statements": [{"name": "extra", "parameters": given}]})
    adapter.execute(asked(adapter, *arguments["statements"], scope=scope))
    assert place.do("SELECT i, f, s, n, r FROM {schema}kinds") == [
        (2**53 - 1, 5.0, "five", None, b"\0\xff")
    ]


# ---------------------------------------------------------------- what is on record


@pytest.mark.parametrize("name", NAMES)
def test_a_receipt_row_holds_all_that_proves_it(name: str, opens: Opens) -> None:
    place = opens(name)
    adapter = place.adapter()
    sent = asked(adapter, *PAYMENT)
    adapter.execute(sent)
    rows = place.do(
        "SELECT idempotency_key, run_id, kind, intent_digest, statement_digest, lease_version, "
        "nonce, committed_at_ms, generation, checkpoint FROM {schema}counterfoil_receipt"
    )
    assert rows == [
        (
            "key-1",
            "run-1",
            "sql.execute",
            sent.digest,
            "s1:approved",
            1,
            "first",
            NOW_MS,
            1,
            "1" * 64,
        )
    ]


def test_a_forbidden_key_is_a_row(opens: Opens) -> None:
    place = opens("sqlite")
    adapter = place.adapter()
    sent = asked(adapter, *PAYMENT)
    adapter.forbid(RUN, KEY, sent.kind, sent.fence)
    text = "SELECT run_id, idempotency_key, lease_version FROM counterfoil_forbidden"
    assert place.do(text) == [("run-1", "key-1", 1)]


def test_people_are_shown_statements_and_values(opens: Opens) -> None:
    """[T16] What could steer a terminal is escaped."""
    adapter = opens("sqlite").adapter()
    call = {"name": "note", "parameters": {"line": "\x1b[31mred"}, "rows": 1}
    shown = adapter.preview("sql.execute", {"statements": [call]})
    assert shown.splitlines() == [
        "note:",
        "  INSERT INTO note (line, author) VALUES (:line, 'run')",
        '  line = "\\u001b[31mred"',
        "  unless it meets 1 rows, nothing happens",
        "  unless it meets 1 rows, nothing happens",
    ]


def test_the_account_is_the_role_that_acts(postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    install_sql(url)
    adapter = open_sql(
        url, statements={"one": Statement(text="SELECT 1", is_query=True)}, now_ms=lambda: NOW_MS
    )
    assert adapter.observe(SCOPE).state.account == "app"
    adapter.close()


# ---------------------------------------------------------------- what operators may register

REFUSED_TEXTS = {
    "a COMMIT": "COMMIT",
    "a BEGIN": "BEGIN",
    "a definition": "CREATE TABLE a (b int)",
    "a pragma": "PRAGMA journal_mode=off",
    "an attachment": "ATTACH 'x' AS y",
    "two statements": "UPDATE note SET line = 'a'; COMMIT",
    "a comment first": "/* */ UPDATE note SET line = 'a'",
    "nothing": "",
    "a NUL": "SELECT 1\0",
    "a book": "SELECT " + "1" * 16_384,
}


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, id=f"C26 d, {what}") for what, text in REFUSED_TEXTS.items()],
)
def test_what_a_transaction_cannot_undo_is_not_registered(text: str, opens: Opens) -> None:
    place = opens("sqlite")
    with pytest.raises(ConfigError):
        place.adapter(statements={"extra": Statement(text=text)})


REFUSED: dict[str, dict[str, Any]] = {
    "a query that changes": {"text": "DELETE FROM note", "is_query": True},
    "a parameter that the text lacks": {"text": "SELECT 1", "parameters": {"a": int}},
    "a type that no column has": {"text": "SELECT :a", "parameters": {"a": list}},
    "a union of types": {"text": "SELECT :a", "parameters": {"a": int | str}},
    "a name that drivers misread": {"text": "SELECT :a-b", "parameters": {"a-b": int}},
    "a number of rows below 0": {"text": "DELETE FROM note", "rows": -1},
}


@pytest.mark.parametrize("options", REFUSED.values(), ids=REFUSED)
def test_a_statement_that_cannot_be_used_is_not_registered(
    options: dict[str, Any], opens: Opens
) -> None:
    place = opens("sqlite")
    with pytest.raises(ConfigError):
        place.adapter(statements={"extra": Statement(**options)})


@pytest.mark.parametrize(
    "options",
    [
        {"statements": {}},
        {"statements": {"a\n": Statement(text="SELECT 1")}},
        {"risk": Risk.READ_ONLY},
        {"call_ms": 99},
        {"call_ms": 600_001},
        {"name": ""},
        {"watch": "DELETE FROM note"},
        {"watch": "SELECT nothing FROM note"},
    ],
    ids=str,
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], opens: Opens) -> None:
    place = opens("sqlite")
    with pytest.raises(ConfigError):
        place.adapter(**options)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text", ["UPDATE {schema}nowhere SET line = 'a'", "UPDATE {schema}note SET line = :undeclared"]
)
def test_a_statement_that_does_not_fit_the_database_does_nothing(
    text: str, name: str, opens: Opens
) -> None:
    place = opens(name)
    adapter, scope = with_statement(place, text)
    sent = asked(adapter, {"name": "extra"}, scope=scope)
    error = raised(lambda: adapter.execute(sent))
    assert error is not None
    assert "extra" in error.message
    assert adapter.look_up(RUN, KEY, "sql.execute").answer is Answer.ABSENT


def test_a_kind_that_is_not_declared_is_refused(opens: Opens) -> None:
    adapter = opens("sqlite").adapter()
    with pytest.raises(ContractError):
        adapter.preview("sql.drop", {})


# ---------------------------------------------------------------- drivers of PEP 249


@pytest.mark.parametrize("row", [pytest.param("C26", id="C26 d, found out by trying")])
def test_connections_that_commit_by_themselves_are_refused(row: str, tmp_path: Path) -> None:
    path = tmp_path / "target.db"
    apsw.Connection(str(path)).close()
    known = {"one": Statement(text="SELECT 1", is_query=True)}
    sound = Dbapi(module=sqlite3, connect=lambda: sqlite3.connect(path))
    install_sql(sound)
    open_sql(sound, statements=known, now_ms=lambda: NOW_MS).close()
    by_itself = Dbapi(module=sqlite3, connect=lambda: sqlite3.connect(path, isolation_level=None))
    with pytest.raises(ConfigError, match="commit by themselves"):
        open_sql(by_itself, statements=known, now_ms=lambda: NOW_MS)


@pytest.mark.parametrize("row", [pytest.param("C26", id="C26 d, said by the driver")])
def test_a_driver_that_says_autocommit_is_refused(row: str, postgres: LocalPostgres) -> None:
    url = fresh_database(postgres)
    place = Dbapi(module=psycopg, connect=lambda: psycopg.connect(url, autocommit=True))
    with pytest.raises(ConfigError, match="commit by themselves"):
        install_sql(place)


def test_another_driver_serves_another_server(postgres: LocalPostgres) -> None:
    """Named parameters, another dialect, and a server's own locks, through the factory."""
    url = fresh_database(postgres)
    with psycopg.connect(url) as db:
        db.execute("CREATE TABLE note (line text)")
    place = Dbapi(module=psycopg, connect=lambda: psycopg.connect(url))
    install_sql(place)
    known = {
        "note": Statement(
            text="INSERT INTO note VALUES (%(line)s) RETURNING line", parameters={"line": str}
        )
    }
    adapter = open_sql(place, statements=known, now_ms=lambda: NOW_MS)
    sent = asked(adapter, noted(1))
    assert not adapter.execute(sent).replayed
    assert adapter.execute(sent).replayed
    with psycopg.connect(url) as db:
        assert db.execute("SELECT line FROM note").fetchall() == [("line 1",)]
    adapter.close()
