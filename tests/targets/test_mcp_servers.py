"""How MCP servers are reached, started and ended, and what is believed of what they say."""

import json
import select
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from counterfoil.adapters.mcp import Ask, Fields, Http, Server, Stdio, Tool, Variable, When
from counterfoil.adapters.mcp.kinds import check_server, kinds_of
from counterfoil.adapters.mcp.listing import listing_of
from counterfoil.core.canonical import canonical
from counterfoil.core.errors import ConfigError, ContractError, CounterfoilError, UnavailableError
from counterfoil.core.words import Key, Level, Risk
from counterfoil.testing.adapter_bench import AdapterBench, Call, operation
from tests.support import mcp_shop as shops
from tests.support.mcp_bench import (
    FIND,
    HTTP,
    MARKS,
    SCOPE,
    STDIO,
    Desk,
    Door,
    create,
    door,
    is_write,
    server,
)
from tests.support.mcp_desk import shared

FILTER = Path(__file__).parents[1] / "support" / "mcp_filter.py"
CANARY = "canary-of-a-secret"
THREADS = 8
PAUSE_SECONDS = 0.1


@pytest.fixture(scope="module")
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return shared(request.session, tmp_path_factory)


@pytest.fixture
def opened(desk: Desk) -> Iterator[Any]:
    """Open doors that are closed at the end."""
    doors: list[Door] = []

    def made(way: str, **more: Any) -> Door:
        doors.append(door(desk, way, **more))
        return doors[-1]

    yield made
    for each in doors:
        each.close()


def sent(adapter: Any, title: str = "A-1", key: str = "key-1") -> Any:
    scoped: Any = type("Bench", (AdapterBench,), {"scope": SCOPE, "__init__": lambda self: None})()
    call = Call(kind="tickets.create", arguments={"title": title})
    return operation(scoped, adapter, call, key=Key(key))


def through(at: Door, *before: str) -> Stdio:
    """Return a server over stdio that is started by another command."""
    reach = at.reach
    assert isinstance(reach, Stdio)
    return replace(reach, command=(*before, *reach.command))


def is_alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def ends(pid: int) -> bool:
    """Return whether a process that was killed ends, which takes the kernel a moment."""
    return any(not is_alive(pid) or select.select([], [], [], PAUSE_SECONDS)[0] for _ in range(600))


# ---------------------------------------------------------------- children


RECORDING = (
    "import json, os, subprocess, sys\n"
    "child = subprocess.Popen(['sleep', '600'], stdin=-3, stdout=-3)\n"
    "said = {'pids': [os.getpid(), child.pid], 'environment': dict(os.environ)}\n"
    "open(sys.argv[1], 'w').write(json.dumps(said))\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)


@pytest.mark.parametrize("stubborn", [False, True], ids=["it ends", "it does not listen"])
def test_a_server_ends_with_the_adapter_and_all_that_it_started(
    stubborn: bool, opened: Any, tmp_path: Path
) -> None:
    at = opened(STDIO)
    said = tmp_path / "said"
    relay = through(at, sys.executable, "-S", "-c", RECORDING, str(said))
    if stubborn:
        shell = 'trap "" TERM HUP; "$0" "$@"; exec sleep 600'
        relay = replace(relay, command=("/bin/sh", "-c", shell, *relay.command))
    adapter = at.open(server(relay, Level.BLIND, is_watched=False))
    pids = json.loads(said.read_text())["pids"]
    assert is_alive(pids[1])
    adapter.close()
    assert [pid for pid in pids if not ends(pid)] == []


def test_a_server_inherits_nothing_that_is_not_named(
    opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY", CANARY)
    at = opened(STDIO, environment={"MODE": "quiet"})
    said = tmp_path / "said"
    relay = through(at, sys.executable, "-S", "-c", RECORDING, str(said))
    at.open(server(relay, Level.BLIND, is_watched=False))
    environment = json.loads(said.read_text())["environment"]
    assert {k: v for k, v in environment.items() if k != "LC_CTYPE"} == {"MODE": "quiet"}


def test_a_secret_is_read_by_reference_and_hidden_in_what_comes_back(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", CANARY)
    at = opened(STDIO, environment={"TOKEN": Variable(name="SHOP_TOKEN")})
    at.fault("leak")
    adapter = at.open(server(at.reach, Level.BLIND, is_watched=False, answer="", fields=Fields()))
    receipt = adapter.execute(sent(adapter))
    assert receipt.result["seen"] == "[hidden]"
    assert CANARY not in repr(at.reach)


def test_a_secret_that_is_not_set_is_said_before_anything_is_sent(opened: Any) -> None:
    at = opened(STDIO, environment={"TOKEN": Variable(name="NO_SUCH_TOKEN")})
    with pytest.raises(UnavailableError, match="NO_SUCH_TOKEN"):
        at.open(server(at.reach, Level.BLIND))


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("no-such-program-anywhere",), id="there is no program"),
        pytest.param(("/dev/null",), id="it is no program"),
        pytest.param(("/bin/false",), id="it ends at once"),
        pytest.param(("/bin/echo", "hello"), id="it speaks another language"),
        pytest.param(("/usr/bin/yes",), id="T30 it speaks without end"),
        pytest.param(("/bin/cat", "/dev/zero"), id="T30 a line without end"),
    ],
)
def test_what_is_no_server_is_unavailable(command: tuple[str, ...], opened: Any) -> None:
    before = threading.active_count()
    with pytest.raises(UnavailableError):
        opened(STDIO).open(server(Stdio(command=command), Level.BLIND))
    assert threading.active_count() <= before


def test_a_server_that_only_knows_the_next_protocol_is_understood(opened: Any) -> None:
    at = opened(STDIO)
    filtered = through(at, sys.executable, "-S", str(FILTER))
    adapter = at.open(server(filtered, Level.DEDUPLICATING))
    receipt = adapter.execute(sent(adapter))
    assert (receipt.result["title"], len(at.tickets())) == ("A-1", 1)


# ---------------------------------------------------------------- threads


@pytest.mark.parametrize("way", [HTTP, STDIO])
def test_calls_of_many_threads_each_get_their_own_answer(way: str, opened: Any) -> None:
    at = opened(way)
    adapter = at.open(server(at.reach, Level.QUERYABLE, is_watched=False))
    built = [sent(adapter, f"title-{n}", f"key-{n}") for n in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as threads:
        receipts = list(threads.map(adapter.execute, built))
    assert [each.result["reference"] for each in receipts] == [each.key for each in built]
    assert len(at.tickets()) == THREADS


def test_a_closed_adapter_has_no_thread_and_says_so(opened: Any) -> None:
    at = opened(HTTP)
    before = set(threading.enumerate())
    adapter = at.open(server(at.reach, Level.DEDUPLICATING, is_watched=False))
    built = sent(adapter)
    adapter.close()
    adapter.close()
    left = {each.name for each in set(threading.enumerate()) - before}
    assert not any(name.startswith("mcp-") for name in left)
    with pytest.raises(UnavailableError, match="closed"):
        adapter.execute(built)
    assert at.tickets() == []


# ---------------------------------------------------------------- what a server says


def listed(declared: Server, *faults: str, **hints: bool) -> Any:
    """Return the kind of tickets, where the server hints so much."""
    tools = shops.tools_of(lambda name: name in faults)
    for tool in tools:
        if tool.name in ("create_ticket", "plain_ticket", "check") and hints:
            tool.annotations = shops.types.ToolAnnotations(**hints)
    return kinds_of(declared, listing_of(declared, tools))


def at_risk(risk: Risk, level: Level = Level.DEDUPLICATING) -> Server:
    return server(Stdio(command=("none",)), level, risk=risk)


@pytest.mark.parametrize(
    ("risk", "hints", "expected"),
    [
        pytest.param("reversible_write", {}, "reversible_write", id="nothing is said"),
        pytest.param(
            "reversible_write",
            {"read_only_hint": False, "destructive_hint": True},
            "irreversible_write",
            id="it destroys",
        ),
        pytest.param(
            "irreversible_write", {"read_only_hint": True}, "irreversible_write", id="it only reads"
        ),
        pytest.param(
            "irreversible_write",
            {"destructive_hint": False, "idempotent_hint": True},
            "irreversible_write",
            id="it is harmless",
        ),
        pytest.param(
            "reversible_write", {"read_only_hint": True}, "reversible_write", id="it reads"
        ),
    ],
)
def test_what_a_server_says_of_a_tool_may_raise_its_risk_and_never_lower_it(
    risk: str, hints: dict[str, bool], expected: str
) -> None:
    assert listed(at_risk(Risk(risk)), **hints)["tickets.create"].spec.risk == expected


@pytest.mark.parametrize(
    ("hints", "expected"),
    [
        pytest.param({"read_only_hint": True}, "read_only", id="it reads"),
        pytest.param({"read_only_hint": False}, "irreversible_write", id="it writes"),
        pytest.param(
            {"read_only_hint": False, "destructive_hint": False},
            "reversible_write",
            id="it adds",
        ),
        pytest.param({"destructive_hint": True}, "irreversible_write", id="it destroys"),
    ],
)
def test_a_read_that_is_said_to_write_is_a_write(hints: dict[str, bool], expected: str) -> None:
    looks = Tool(name="desk.look", tool="plain_ticket", risk=Risk.READ_ONLY)
    declared = Server(name="desk", reach=Stdio(command=("none",)), tools=(looks,))
    assert listed(declared, **hints)["desk.look"].spec.risk == expected


@pytest.mark.parametrize(
    ("level", "hint", "expected"),
    [
        pytest.param("deduplicating", False, "queryable", id="said to repeat"),
        pytest.param("deduplicating", True, "deduplicating", id="said to be idempotent"),
        pytest.param("blind", True, "blind", id="C35 a hint does not make it repeatable"),
        pytest.param("queryable", True, "queryable", id="C35 nor can it be sent again"),
    ],
)
def test_a_hint_takes_repetition_away_and_never_gives_it(
    level: str, hint: bool, expected: str
) -> None:
    kinds = listed(at_risk(Risk.REVERSIBLE_WRITE, Level(level)), idempotent_hint=hint)
    assert kinds["tickets.create"].spec.level == expected


def test_the_risk_is_raised_by_what_a_real_server_says(opened: Any) -> None:
    at = opened(HTTP)
    at.fault("raise")
    declared = server(at.reach, Level.DEDUPLICATING, risk=Risk.REVERSIBLE_WRITE)
    risks = {spec.name: spec.risk for spec in at.open(declared).kinds}
    assert risks["tickets.create"] is Risk.IRREVERSIBLE_WRITE


@pytest.mark.parametrize("case", ["T15 a description that gives orders"])
def test_what_a_description_says_is_data(case: str) -> None:
    honest = listed(at_risk(Risk.REVERSIBLE_WRITE))["tickets.create"].spec
    steering = listed(at_risk(Risk.REVERSIBLE_WRITE), "rug")["tickets.create"].spec
    names = ("risk", "level", "permission", "touches", "call_ms")
    for name in names[:3]:
        assert getattr(honest, name) == getattr(steering, name)


@pytest.mark.parametrize("case", ["T26 what a shell, a path and a database would read"])
def test_what_is_proposed_reaches_the_tool_as_it_is(case: str, opened: Any) -> None:
    at = opened(HTTP)
    adapter = at.open(server(at.reach, Level.DEDUPLICATING))
    title = '\'; DROP TABLE ticket; -- $(rm) ../../\n"quoted" {} %s ä'
    adapter.execute(sent(adapter, title, "key'; --"))
    (ticket,) = at.tickets()
    assert (ticket["title"], ticket["reference"]) == (title, "key'; --")


@pytest.mark.parametrize("case", ["T30 a pattern that never ends"])
def test_no_pattern_of_a_schema_is_run(case: str) -> None:
    normalise = listed(at_risk(Risk.REVERSIBLE_WRITE))["tickets.create"].spec.normalise
    given = {"title": "a" * 79 + "!"}
    assert normalise(given) == given


def test_arguments_beyond_the_bound_are_refused_with_it() -> None:
    normalise = listed(at_risk(Risk.REVERSIBLE_WRITE))["tickets.create"].spec.normalise
    given: dict[str, Any] = {"title": "a", "lines": list(range(100_000))}
    size = len(canonical(given))
    with pytest.raises(ContractError, match=f"{size} bytes, the bound is 262144"):
        normalise(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({"title": CANARY * 5}, "arguments/title breaks maxLength", id="too long"),
        pytest.param({"title": [CANARY]}, "arguments/title breaks type", id="a type"),
        pytest.param({"title": "a", "lines": [1, CANARY]}, "lines/1 breaks type", id="inside"),
        pytest.param({"title": "a", "more": CANARY}, "breaks additionalProperties", id="too much"),
        pytest.param({"lines": []}, "arguments breaks required", id="too little"),
    ],
)
def test_a_refused_argument_is_named_with_its_rule_and_not_quoted(
    given: dict[str, Any], said: str
) -> None:
    normalise = listed(at_risk(Risk.REVERSIBLE_WRITE))["tickets.create"].spec.normalise
    with pytest.raises(ContractError, match=said) as caught:
        normalise(given)
    assert CANARY not in told(caught.value)


@pytest.mark.parametrize("name", sorted(MARKS))
def test_what_the_adapter_puts_in_cannot_be_proposed(name: str) -> None:
    normalise = listed(at_risk(Risk.REVERSIBLE_WRITE))["tickets.create"].spec.normalise
    with pytest.raises(ContractError, match=rf"arguments\.{name}"):
        normalise({"title": "a", name: "mine"})


def test_a_preview_shows_the_call(opened: Any) -> None:
    at = opened(HTTP)
    adapter = at.open(server(at.reach, Level.DEDUPLICATING))
    shown = adapter.preview("tickets.create", {"title": "A-1"})
    assert shown == 'create_ticket of desk\n\n{"title":"A-1"}'


# ---------------------------------------------------------------- declarations


def test_a_server_without_the_tool_cannot_be_opened(opened: Any) -> None:
    at = opened(HTTP)
    at.fault("gone")
    with pytest.raises(ConfigError, match="find_ticket"):
        at.open(server(at.reach, Level.DEDUPLICATING))


def test_a_tool_that_is_said_to_write_is_asked_nothing() -> None:
    declared = server(
        Stdio(command=("none",)),
        Level.QUERYABLE,
        look_up=Ask(tool="touchy", marks={"reference": "key"}),
    )
    with pytest.raises(ConfigError, match="no read tool 'touchy'"):
        listed(declared)


def test_a_mark_that_the_tool_does_not_take_is_refused() -> None:
    declared = server(Stdio(command=("none",)), Level.DEDUPLICATING, marks={"token": "key"})
    with pytest.raises(ConfigError, match="no argument 'token'"):
        listed(declared)


LOCAL = Stdio(command=("none",))


def tool(**more: Any) -> Server:
    declared = create(more.pop("level", Level.QUERYABLE), **more)
    return Server(name="desk", reach=LOCAL, tools=(declared,))


def reached(reach: Any) -> Server:
    return Server(name="desk", reach=reach, tools=())


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        pytest.param(tool(risk=Risk.CONTROL), "risk control", id="control"),
        pytest.param(tool(passes=When(at="/a")), "`passes`", id="a write that passes"),
        pytest.param(tool(risk=Risk.READ_ONLY), "is a read", id="a read with a key"),
        pytest.param(tool(call_ms=0), "call_ms of 0", id="no time"),
        pytest.param(tool(answer="ticket"), "answer of tickets.create", id="no pointer"),
        pytest.param(tool(fields=Fields(id="id")), "fields.id", id="no pointer in a field"),
        *(
            pytest.param(tool(refused_codes=(code,)), f"{code} is also", id=f"{code} is made up")
            for code in (-32700, -32600, -32601, -32603, -32000, -32001, 0)
        ),
        pytest.param(tool(fields=Fields(id="/id")), "no fields.key", id="no key in receipts"),
        pytest.param(tool(look_up=None), "cannot be asked", id="nothing to ask"),
        pytest.param(tool(level=Level.BLIND, look_up=FIND), "more than blind", id="blind"),
        pytest.param(
            tool(level=Level.DEDUPLICATING, look_up=replace(FIND, linearizable=False)),
            "queryable at most",
            id="a look-up that lags",
        ),
        pytest.param(
            tool(look_up=replace(FIND, marks={"reference": "run"})), "asks for a key", id="no key"
        ),
        pytest.param(
            tool(look_up=replace(FIND, arguments={"reference": "x"})), "given twice", id="twice"
        ),
        pytest.param(reached(Stdio(command=())), "command of desk", id="no command"),
        pytest.param(
            reached(Stdio(command=("a",), environment={"A=B": "c"})), "no name", id="a name"
        ),
        pytest.param(
            reached(Http(url="https://a/mcp", headers={"A": Variable(name="B", form="x")})),
            "names no variable",
            id="a form without a place",
        ),
        pytest.param(reached(Http(url="http://example.com/mcp")), "without TLS", id="T27 plain"),
        pytest.param(reached(Http(url="ftp://example.com")), "form https", id="T27 a scheme"),
        pytest.param(reached(Http(url="https://u:p@example.com")), "a password", id="a user"),
        pytest.param(reached(Http(url="https://example.com:x/")), "no address", id="no port"),
        pytest.param(reached(Http(url="https://example.com/#a")), "fragment", id="a fragment"),
    ],
)
def test_what_cannot_be_held_is_not_declared(declared: Server, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_server(declared)


ADDRESSES = [
    pytest.param(f"https://desk.example/mcp?token={CANARY}", id="a query"),
    pytest.param(f"https://{CANARY}@desk.example/mcp", id="a user"),
    pytest.param(f"https://u:{CANARY}@desk.example/mcp", id="a password"),
    pytest.param(f"https://desk.example:{CANARY}/mcp", id="a port"),
    pytest.param(f"https://desk.example/mcp#{CANARY}", id="a fragment"),
    pytest.param(f"ftp://desk.example/{CANARY}", id="a scheme"),
    pytest.param(f"https://desk.example/{CANARY}\n", id="an odd character"),
    pytest.param(f"http://desk.example/{CANARY}", id="no TLS"),
]


@pytest.mark.parametrize("url", ADDRESSES)
def test_what_may_be_a_secret_in_an_address_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_server(reached(Http(url=url)))
    assert CANARY not in told(caught.value)


def told(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def asked(at: Door, **more: Any) -> Server:
    """Declare a desk that is reached by an address with a secret."""
    reach = at.reach
    assert isinstance(reach, Http)
    return server(replace(reach, url=f"{reach.url}?token={CANARY}"), Level.DEDUPLICATING, **more)


def test_a_query_is_sent_where_a_name_stands_for_the_address(opened: Any) -> None:
    at = opened(HTTP)
    adapter = at.open(asked(at, instance="the desk"))
    assert adapter.execute(sent(adapter)).poststate.instance.startswith("the desk#")
    assert f"/mcp?token={CANARY} ".encode() in at.proxy.seen[-1]


@pytest.mark.parametrize("fate", ["down", "307", "401", "405", "gone", "500"])
def test_no_error_of_a_server_quotes_its_address(fate: str, opened: Any) -> None:
    at = opened(HTTP)
    adapter = at.open(asked(at, instance="the desk"))
    built = sent(adapter)
    if fate == "down":
        at.proxy.close()
    else:
        at.proxy.arm(fate, is_write)
    with pytest.raises(CounterfoilError) as caught:
        adapter.execute(built)
    assert CANARY not in told(caught.value)


@pytest.mark.parametrize("level", [Level.TRANSACTIONAL, Level.CONDITIONAL])
def test_no_tool_is_more_than_deduplicating(level: Level) -> None:
    declared = replace(create(Level.QUERYABLE), level=level)
    with pytest.raises(ConfigError, match=f"is {level}"):
        check_server(Server(name="desk", reach=LOCAL, tools=(declared,)))


def test_the_library_needs_no_sdk_until_a_server_is_opened() -> None:
    code = "import sys, counterfoil.adapters.mcp; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_server_may_greet_on_its_standard_output(opened: Any) -> None:
    at = opened(STDIO)
    greeting = through(at, "/bin/sh", "-c", 'echo "welcome"; exec "$0" "$@"')
    adapter = at.open(server(greeting, Level.DEDUPLICATING))
    adapter.execute(sent(adapter))
    assert len(at.tickets()) == 1
