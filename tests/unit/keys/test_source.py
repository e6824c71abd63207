"""A setting names the place of a key; a key that stands there itself is refused unheard."""

import base64
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.core.errors import ConfigError, UnavailableError
from counterfoil.keys import (
    KeySource,
    KeyStatus,
    Purpose,
    create_keyring,
    keyring_of,
    open_source,
    parse_source,
)
from counterfoil.keys.source import OUTPUT_BYTES_MAX, SourceKind
from tests.support.secrecy import forms, leaks, open_descriptors

ONE = bytes(range(100, 132))
TWO = bytes(range(32))
HEX = ONE.hex()
B64 = base64.b64encode(ONE).decode("ascii")
NAME = "COUNTERFOIL_TEST_KEY"


def from_env(text: str, patch: pytest.MonkeyPatch) -> list[tuple[str, KeyStatus]]:
    patch.setenv(NAME, text)
    return [(row.id, row.status) for row in open_source(parse_source(f"env:{NAME}")).rows]


def command(*words: str) -> KeySource:
    return parse_source(f"command:{shlex.join(words)}")


def program(code: str) -> KeySource:
    return command(sys.executable, "-c", code)


FIRST = keyring_of(ONE).rows[0].id
SECOND = keyring_of(TWO).rows[0].id


# Places


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file:/a/b.json", KeySource(kind=SourceKind.FILE, place="/a/b.json")),
        ("file:~/k", KeySource(kind=SourceKind.FILE, place="~/k")),
        ("env:KEY_1", KeySource(kind=SourceKind.ENV, place="KEY_1")),
        (
            "command:pass show 'my key'",
            KeySource(kind=SourceKind.COMMAND, place="pass show 'my key'"),
        ),
        (f"file:/keys/{HEX}.json", KeySource(kind=SourceKind.FILE, place=f"/keys/{HEX}.json")),
    ],
)
def test_a_source_is_read(text: str, expected: KeySource) -> None:
    assert parse_source(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("file:", id="no path"),
        pytest.param("env:", id="no name"),
        pytest.param("env:A=B", id="an assignment"),
        pytest.param("env:1A", id="a name that begins with a digit"),
        pytest.param("command:", id="no command"),
        pytest.param("command:   ", id="a blank command"),
        pytest.param("command:a 'b", id="an open quote"),
        pytest.param("vault:secret/key", id="an unknown kind"),
        pytest.param("/etc/key", id="no kind"),
        pytest.param("FILE:/a", id="a kind in capitals"),
        pytest.param("file:/a\x00b", id="a NUL"),
    ],
)
def test_a_source_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write file:PATH, env:NAME or command:ARGV"):
        parse_source(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HEX, id="T23 hexadecimal"),
        pytest.param(HEX.upper(), id="T23 hexadecimal in capitals"),
        pytest.param(B64, id="T23 base64"),
        pytest.param(
            base64.urlsafe_b64encode(bytes(range(200, 232))).decode(), id="T23 base64 of URLs"
        ),
        pytest.param(f"env:{HEX}", id="T23 as a name"),
        pytest.param(f"file:{B64}", id="T23 as a path"),
        pytest.param(f"key:{HEX}", id="T23 under a kind of its own"),
        pytest.param(f" {HEX} ", id="T23 between blanks"),
        pytest.param(f"command:echo {B64}", id="T23 key on a command line"),
        pytest.param(f"command:vault --key={HEX}", id="T23 key in an option"),
        pytest.param(f"command:sh -c 'echo {HEX}'", id="T23 key in a script"),
    ],
)
def test_a_key_in_place_of_its_place_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match="a key itself stands where the place") as refused:
        parse_source(text)
    assert [
        part
        for secret in (HEX, HEX.upper(), B64, text)
        for part in leaks(refused.value, secret, above=Path(__file__).name)
    ] == []


@pytest.mark.parametrize("text", [pytest.param(f"{B64}{B64}", id="T23 a key of another length")])
def test_a_source_of_no_kind_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_source(text)
    assert leaks(refused.value, B64, above=Path(__file__).name) == []


@given(st.text())
@pytest.mark.parametrize("door", [pytest.param("parse_source", id="acc-A17 T9 parse_source")])
def test_only_a_config_error_leaves_the_door(door: str, text: str) -> None:
    for scheme in ("", "file:", "env:", "command:"):
        try:
            parse_source(scheme + text)
        except ConfigError:
            continue


def test_a_source_does_not_show_its_command() -> None:
    assert "token" not in repr(parse_source("command:vault --token=abc"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file:/a b", "key file /a b"),
        ("env:KEY", "environment variable KEY"),
        ("command:vault --token=abc", "key command vault"),
    ],
)
def test_a_source_has_a_title_for_messages(text: str, expected: str) -> None:
    assert parse_source(text).title == expected


# Files


def test_a_key_file_is_opened(tmp_path: Path) -> None:
    made = create_keyring(tmp_path / "private" / "keys.json")
    assert open_source(parse_source(f"file:{tmp_path}/private/keys.json")).rows == made.rows


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = create_keyring(tmp_path / "private" / "keys.json")
    assert open_source(parse_source("file:~/private/keys.json")).rows == made.rows


# Variables


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(HEX, [(FIRST, KeyStatus.ACTIVE)], id="hexadecimal"),
        pytest.param(HEX.upper(), [(FIRST, KeyStatus.ACTIVE)], id="hexadecimal in capitals"),
        pytest.param(B64, [(FIRST, KeyStatus.ACTIVE)], id="base64"),
        pytest.param(f"\n{B64}\n", [(FIRST, KeyStatus.ACTIVE)], id="white space around"),
        pytest.param(
            f"{HEX}, {base64.b64encode(TWO).decode()}",
            [(FIRST, KeyStatus.ACTIVE), (SECOND, KeyStatus.OPENING)],
            id="two, of which the first signs",
        ),
    ],
)
def test_a_variable_holds(
    text: str, expected: list[tuple[str, KeyStatus]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert from_env(text, monkeypatch) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "0 bytes, exactly 32", id="acc-077 nothing"),
        pytest.param(HEX[:-2], "31 bytes, exactly 32", id="acc-077 T7 a byte short"),
        pytest.param(HEX[:32], "16 bytes, exactly 32", id="acc-077 half a key"),
        pytest.param(HEX + "00", "33 bytes, exactly 32", id="acc-077 a byte long"),
        pytest.param(HEX[:-1], "something that is no key", id="a digit short"),
        pytest.param("00" * 32, "one byte repeated", id="acc-077 only zeros"),
        pytest.param(
            base64.b64encode(b"a" * 32).decode(), "one byte repeated", id="acc-077 one letter"
        ),
        pytest.param(B64[:-1], "something that is no key", id="base64 without its padding"),
        pytest.param(f"{HEX},", "key 2 of .* 0 bytes", id="a comma too many"),
        pytest.param(f"{HEX},{B64}", "one key twice", id="one key in two spellings"),
        pytest.param(
            "correct horse battery staple", "something that is no key", id="a pass phrase"
        ),
        pytest.param("é" * 44, "something that is no key", id="no ASCII"),
        pytest.param("A" * (OUTPUT_BYTES_MAX + 1), f"bound is {OUTPUT_BYTES_MAX}", id="too long"),
    ],
)
def test_a_variable_is_refused_with(
    text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=reason):
        from_env(text, monkeypatch)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(HEX + "00", id="T23 a key a byte long"),
        pytest.param(f"{HEX},{B64}", id="T23 one key twice"),
        pytest.param(f"{HEX},no key", id="T23 a key beside something else"),
        pytest.param(f"key: {HEX}", id="T23 a key with a label"),
        pytest.param(f"{HEX}é", id="T23 a key with a letter that is none"),
    ],
)
def test_a_refusal_does_not_repeat_a_variable(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as refused:
        from_env(text, monkeypatch)
    assert [
        part
        for form in forms(ONE)
        for part in leaks(refused.value, form, above=Path(__file__).name)
    ] == []


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NAME, raising=False)
    with pytest.raises(ConfigError, match=f"environment variable {NAME} is not set"):
        open_source(parse_source(f"env:{NAME}"))


# Commands


def test_a_command_says_the_key() -> None:
    ring = open_source(program(f"print({HEX[:32]!r} + {HEX[32:]!r})"))
    assert ring.signer(Purpose.CHECKPOINT).id == FIRST


def test_a_command_may_say_several_keys() -> None:
    half = len(HEX) // 2
    code = f"print({HEX[:half]!r} + {HEX[half:]!r}, ',', bytes(range(32)).hex())"
    assert [row.id for row in open_source(program(code)).rows] == [FIRST, SECOND]


@pytest.mark.parametrize("name", [pytest.param("canary", id="T28 what a shell would run")])
def test_no_shell_reads_a_command(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        open_source(parse_source(f"command:echo $HOME; touch {tmp_path}/{name} `id`"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        pytest.param(command("/no/such/command"), "cannot be started", id="it is not there"),
        pytest.param(command("/etc/passwd"), "cannot be started", id="it may not run"),
        pytest.param(command("false"), "ended with status 1", id="it fails"),
        pytest.param(
            program("raise SystemExit(7)"), "ended with status 7", id="it fails otherwise"
        ),
        pytest.param(
            program("import os; os.kill(os.getpid(), 9)"), "ended with status -9", id="it is killed"
        ),
        pytest.param(command("true"), "0 bytes, exactly 32", id="it says nothing"),
        pytest.param(command("echo", "hello world"), "no key", id="it says something else"),
        pytest.param(command("yes"), f"more than {OUTPUT_BYTES_MAX} bytes", id="T30 it never ends"),
        pytest.param(
            program("import os; os.write(1, b'\\xff' * 44)"), "no key", id="it says what is no text"
        ),
    ],
)
def test_a_command_is_refused_when(source: KeySource, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        open_source(source)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import time; time.sleep(60)", id="T30 it says nothing"),
        pytest.param(
            "import os, time; os.close(1); time.sleep(60)", id="T30 it closes its output and stays"
        ),
        pytest.param(
            "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)",
            id="T30 it does not listen",
        ),
        pytest.param(
            "import subprocess; subprocess.run(['sleep', '60'])", id="T30 its own child hangs"
        ),
    ],
)
def test_a_command_that_takes_too_long_is_given_up(code: str) -> None:
    with pytest.raises(UnavailableError, match="in time"):
        open_source(program(code), command_ms=400)


@pytest.mark.parametrize("who", [pytest.param("child", id="T30 with its children")])
def test_a_command_that_is_given_up_is_ended(who: str, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    script = f"sleep 3600 & echo $$ $! > {shlex.quote(str(note))}; wait"
    with pytest.raises(UnavailableError):
        open_source(command("sh", "-c", script), command_ms=2_000)
    for pid in map(int, note.read_text().split()):
        while _is_running(pid):  # a child that was killed dies when it gets to run
            time.sleep(0.01)


def _is_running(pid: int) -> bool:
    """Return whether a process still runs; one that nobody has buried yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


@pytest.mark.parametrize(
    "status", [pytest.param(0, id="T23 it works"), pytest.param(3, id="T23 it fails")]
)
def test_what_a_command_complains_of_is_not_shown(
    status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        f"import sys; key = {HEX[:32]!r} + {HEX[32:]!r}\n"
        f"print('debug', key, file=sys.stderr); print(key); raise SystemExit({status})"
    )
    with suppress(ConfigError):
        open_source(program(code))
    assert "".join(capfd.readouterr()) == ""


@pytest.mark.parametrize("extra", [pytest.param("00", id="T23 a key a byte long")])
def test_what_a_command_said_is_not_repeated(extra: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_source(program(f"print({HEX[:32]!r} + {HEX[32:]!r} + {extra!r})"))
    assert leaks(refused.value, HEX, above=Path(__file__).name) == []


def test_a_command_reads_nothing_from_us() -> None:
    with pytest.raises(ConfigError, match="0 bytes"):
        open_source(command("cat"))


def test_no_descriptor_is_left_open() -> None:
    before = open_descriptors()
    for source in (command("true"), command("false"), command("yes"), command("/no/such")):
        with pytest.raises(ConfigError):
            open_source(source)
    assert open_descriptors() == before
