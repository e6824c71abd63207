"""A key file is for one user, in one form, and old or new but never half."""

import base64
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.core.errors import ConfigError, CounterfoilError, UnavailableError
from counterfoil.core.words import Json
from counterfoil.keys import (
    KeyStatus,
    Purpose,
    add_key,
    check_apart,
    create_keyring,
    load_keyring,
    retire,
    rotate,
)
from counterfoil.keys.keyfile import FILE_BYTES_MAX
from counterfoil.keys.keyring import KEYS_MAX
from counterfoil.keys.private import is_there, locked_folder, opened_folder, read, write
from tests.support.secrecy import forms, leaks, open_descriptors

NOW_MS = 1_767_355_200_000
STRANGER = 12_345


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A key file with one key, in a folder of its own."""
    made = tmp_path / "private" / "keys.json"
    create_keyring(made, now_ms=NOW_MS)
    return made


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def stored(path: Path) -> Json:
    return json.loads(path.read_bytes())


def rewritten(path: Path, change: Callable[[Json], object]) -> None:
    content = stored(path)
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def statuses(path: Path) -> list[KeyStatus]:
    return [row.status for row in load_keyring(path).rows]


# Making, changing, listing


def test_a_fresh_ring_has_one_key_that_signs(path: Path) -> None:
    (row,) = load_keyring(path).rows
    assert (row.status, row.created_at, row.id[:3], len(row.id)) == (
        KeyStatus.ACTIVE,
        "2026-01-02T12:00:00.000Z",
        "k1-",
        19,
    )


def test_a_ring_is_the_one_that_was_made(tmp_path: Path) -> None:
    made = create_keyring(tmp_path / "a" / "keys.json")
    code = made.signer(Purpose.LEASE).sign(b"m")
    assert load_keyring(tmp_path / "a" / "keys.json").signer(Purpose.LEASE).sign(b"m") == code


@pytest.mark.parametrize("umask", [0, 0o022, 0o277], ids=["open", "usual", "odd"])
def test_file_and_folder_are_private_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        create_keyring(tmp_path / "deep" / "down" / "keys.json")
    finally:
        os.umask(before)
    folder = tmp_path / "deep" / "down"
    modes = [mode_of(entry) & 0o077 for entry in (folder, *folder.iterdir())]
    assert (mode_of(folder / "keys.json"), set(modes)) == (0o600, {0})


def test_a_key_file_is_not_made_twice(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="there is a key file"):
        create_keyring(path)
    assert path.read_bytes() == before


def test_a_dangling_link_is_not_made_a_key_file(tmp_path: Path) -> None:
    (tmp_path / "keys.json").symlink_to(tmp_path / "elsewhere")
    tmp_path.chmod(0o700)
    with pytest.raises(ConfigError):
        create_keyring(tmp_path / "keys.json")
    assert not (tmp_path / "elsewhere").exists()


def test_an_added_key_opens_and_does_not_sign(path: Path) -> None:
    row = add_key(path)
    assert (row.status, statuses(path)) == (
        KeyStatus.OPENING,
        [KeyStatus.ACTIVE, KeyStatus.OPENING],
    )


def test_rotation_signs_with_a_fresh_key_and_still_opens_with_the_old(path: Path) -> None:
    row = rotate(path, now_ms=NOW_MS)
    ring = load_keyring(path)
    assert (ring.signer(Purpose.CHECKPOINT).id, statuses(path), row.created_at[:4]) == (
        row.id,
        [KeyStatus.OPENING, KeyStatus.ACTIVE],
        "2026",
    )


def test_rotation_can_go_to_a_key_that_all_hosts_know(path: Path) -> None:
    added = add_key(path)
    assert rotate(path, to=added.id).id == added.id == load_keyring(path).rows[1].id


def test_a_retired_key_is_listed_and_opens_nothing(path: Path) -> None:
    old = load_keyring(path).rows[0].id
    rotate(path)
    retire(path, old)
    ring = load_keyring(path)
    assert (ring.rows[0].status, old in ring.verifiers(Purpose.CHECKPOINT)) == (
        KeyStatus.RETIRED,
        False,
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(
            lambda path: retire(path, load_keyring(path).rows[0].id), "is active", id="retire it"
        ),
        pytest.param(
            lambda path: rotate(path, to=load_keyring(path).rows[0].id),
            "is active",
            id="rotate to it",
        ),
        pytest.param(
            lambda path: retire(path, "k1-no"), "no key of this id", id="retire a stranger"
        ),
        pytest.param(
            lambda path: rotate(path, to="k1-no"), "no key of this id", id="rotate to none"
        ),
    ],
)
def test_the_active_key_and_strangers_stay(
    change: Callable[[Path], object], reason: str, path: Path
) -> None:
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=reason):
        change(path)
    assert path.read_bytes() == before


def test_a_retired_key_does_not_come_back(path: Path) -> None:
    old = load_keyring(path).rows[0].id
    rotate(path)
    retire(path, old)
    with pytest.raises(ConfigError, match="is retired"):
        rotate(path, to=old)


def test_a_full_ring_takes_no_further_key(path: Path) -> None:
    for _ in range(KEYS_MAX - 1):
        add_key(path)
    with pytest.raises(ConfigError, match="65 keys, the bound is 64"):
        add_key(path)
    assert len(load_keyring(path).rows) == KEYS_MAX


# Modes, owners, links


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, id=f"T23 mode {mode:04o}")
        for mode in (0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o644, 0o666, 0o777)
    ],
)
def test_a_key_file_open_to_others_is_refused_with_the_mend(mode: int, path: Path) -> None:
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}") as refused:
        load_keyring(path)
    assert f"chmod 600 {path}" in str(refused.value)


@pytest.mark.parametrize(
    "mode", [pytest.param(0o400, id="T23 read-only"), pytest.param(0o700, id="T23 x")]
)
def test_a_key_file_for_its_owner_alone_is_taken(mode: int, path: Path) -> None:
    path.chmod(mode)
    assert len(load_keyring(path).rows) == 1


@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, id=f"T23 mode {mode:04o}") for mode in (0o770, 0o707, 0o720, 0o1777)],
)
@pytest.mark.parametrize("act", [load_keyring, add_key, rotate], ids=["load", "add", "rotate"])
def test_a_folder_that_others_write_to_is_refused_with_the_mend(
    act: Callable[[Path], object], mode: int, path: Path
) -> None:
    path.parent.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}") as refused:
        act(path)
    assert f"chmod 700 {path.parent}" in str(refused.value)


@pytest.mark.parametrize("mode", [pytest.param(0o770, id="T23 a folder open to a group")])
def test_no_key_file_is_made_where_others_write(mode: int, tmp_path: Path) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 700"):
        create_keyring(tmp_path / "keys.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [pytest.param("a b;c", id="T23 a path that a shell would read")])
def test_the_mend_can_be_pasted(name: str, tmp_path: Path) -> None:
    path = tmp_path / name / "keys.json"
    create_keyring(path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"chmod 600 '.*/a b;c/keys\.json'"):
        load_keyring(path)


@pytest.mark.parametrize(
    "act", [load_keyring, add_key], ids=["T23 load a link", "T23 add by a link"]
)
def test_a_link_is_refused(act: Callable[[Path], object], path: Path) -> None:
    link = path.with_name("link.json")
    link.symlink_to(path)
    with pytest.raises(ConfigError, match="symbolic link"):
        act(link)


def test_a_folder_behind_a_link_is_judged_as_it_is(path: Path) -> None:
    link = path.parent.with_name("link")
    link.symlink_to(path.parent)
    assert load_keyring(link / path.name).rows == load_keyring(path).rows


@pytest.mark.parametrize(
    "kind", [pytest.param("fifo", id="T23 a pipe"), pytest.param("dir", id="T23 a folder")]
)
def test_what_is_no_file_is_refused(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "keys.json"
    if kind == "fifo":
        os.mkfifo(place, 0o600)
    else:
        place.mkdir(0o700)
    with pytest.raises(ConfigError):
        load_keyring(place)


def owned_by_another(path: Path) -> Path:
    """Return a file of another user: root can give one away, others find one of root."""
    if os.geteuid() != 0:
        return Path("/etc/passwd")
    os.chown(path, STRANGER, -1)
    return path


@pytest.mark.parametrize("part", [pytest.param("file", id="T23 a file of another user")])
def test_a_key_file_of_another_user_is_refused(part: str, path: Path) -> None:
    with pytest.raises(ConfigError, match=r"belongs to user .*chown"):
        load_keyring(owned_by_another(path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
@pytest.mark.parametrize("part", [pytest.param("folder", id="T23 a folder of another user")])
def test_a_folder_of_another_user_is_refused(part: str, path: Path) -> None:
    os.chown(path.parent, STRANGER, -1)
    with pytest.raises(ConfigError, match=f"belongs to user {STRANGER}"):
        load_keyring(path)


@pytest.mark.parametrize("act", [load_keyring, add_key, rotate], ids=["load", "add", "rotate"])
def test_a_missing_key_file_is_named_with_the_mend(
    act: Callable[[Path], object], tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(ConfigError, match=r"there is no file .*counterfoil init"):
        act(tmp_path / "keys.json")


@pytest.mark.parametrize(
    ("place", "is_apart"),
    [
        pytest.param("project/keys.json", False, id="in the project"),
        pytest.param("project/.counterfoil/keys.json", False, id="further in"),
        pytest.param("elsewhere/../project/keys.json", False, id="by another spelling"),
        pytest.param("link/keys.json", False, id="behind a link"),
        pytest.param("project-keys/keys.json", True, id="beside the project"),
        pytest.param("keys.json", True, id="above the project"),
    ],
)
def test_a_key_file_stands_apart_from_the_project(
    place: str, is_apart: bool, tmp_path: Path
) -> None:
    for name in ("project", "elsewhere", "project-keys"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "project")
    try:
        check_apart(tmp_path / place, tmp_path / "project")
    except ConfigError:
        assert not is_apart
    else:
        assert is_apart


# The form


SECRET = base64.b64encode(bytes(range(32))).decode()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda c: c.update(format=2), r"at \$.format", id="a format of tomorrow"),
        pytest.param(lambda c: c.update(extra=1), "key file of format 1", id="an unknown member"),
        pytest.param(lambda c: c.pop("format"), "key file of format 1", id="no format"),
        pytest.param(lambda c: c.update(keys=[]), "0 active keys", id="no key"),
        pytest.param(lambda c: c.update(keys={}), r"at \$.keys", id="keys in no list"),
        pytest.param(lambda c: c["keys"][0].pop("id"), r"at \$.keys\[0\]", id="no id"),
        pytest.param(
            lambda c: c["keys"][0].update(status="new"), r"status", id="a status of its own"
        ),
        pytest.param(
            lambda c: c["keys"][0].update(extra=1), r"at \$.keys", id="a member further in"
        ),
        pytest.param(lambda c: c["keys"][0].update(id="k1-0"), "its own id", id="another id"),
        pytest.param(
            lambda c: c["keys"][0].update(secret=SECRET), "its own id", id="another secret"
        ),
        pytest.param(lambda c: c["keys"][0].update(secret="?"), "secret or a date", id="no base64"),
        pytest.param(
            lambda c: c["keys"][0].update(secret="AAAA"), "3 bytes", id="acc-077 a short key"
        ),
        pytest.param(lambda c: c["keys"][0].update(secret=""), "0 bytes", id="acc-077 no secret"),
        pytest.param(
            lambda c: c["keys"][0].update(secret=base64.b64encode(bytes(33)).decode()),
            "33 bytes",
            id="acc-077 a long key",
        ),
        pytest.param(lambda c: c["keys"][0].update(created_at="soon"), "a date", id="no date"),
        pytest.param(
            lambda c: c["keys"][0].update(created_at="2026-01-02T12:00:00"), "no zone", id="no zone"
        ),
        pytest.param(lambda c: c["keys"].append(c["keys"][0]), "2 active", id="one key twice"),
    ],
)
def test_a_key_file_in_another_form_is_refused(
    change: Callable[[Json], object], reason: str, path: Path
) -> None:
    rewritten(path, change)
    with pytest.raises(ConfigError, match=reason):
        load_keyring(path)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="T9 nothing"),
        pytest.param(b"\xff\xfe", id="T9 no text"),
        pytest.param(b'{"format":1,"format":1,"keys":[]}', id="T9 a member twice"),
        pytest.param(b"[" * 60_000, id="T9 deeper than the stack"),
        pytest.param(b" " * (FILE_BYTES_MAX + 1), id="T9 one byte too long"),
        pytest.param(SECRET.encode(), id="T23 the key alone"),
    ],
)
def test_a_file_that_is_no_key_file_is_refused(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is no key file of format 1"):
        load_keyring(path)


def test_white_space_that_a_person_added_is_no_fault(path: Path) -> None:
    before = load_keyring(path).rows
    path.write_text(json.dumps(stored(path), indent=4), encoding="utf-8")
    assert load_keyring(path).rows == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda c, s: c["keys"][0].update(status=s), id="T23 a secret as the status"),
        pytest.param(lambda c, s: c["keys"][0].update({s: 1}), id="T23 a secret as a member"),
        pytest.param(lambda c, s: c.update({s: 1}), id="T23 a secret as a member above"),
        pytest.param(lambda c, s: c["keys"][0].update(created_at=s), id="T23 a secret as the date"),
        pytest.param(lambda c, s: c["keys"][0].update(id=s), id="T23 a secret as the id"),
        pytest.param(lambda c, s: c["keys"][0].update(secret=s + "A"), id="T23 a letter too many"),
        pytest.param(lambda c, s: c["keys"][0].update(secret=[s]), id="T23 a secret in a list"),
        pytest.param(lambda c, s: c.update(format=s), id="T23 a secret as the format"),
    ],
)
def test_a_refusal_does_not_repeat_what_it_read(
    change: Callable[[Json, str], object], path: Path
) -> None:
    secret = stored(path)["keys"][0]["secret"]
    rewritten(path, lambda content: change(content, secret))
    with pytest.raises(ConfigError) as refused:
        load_keyring(path)
    assert leaks(refused.value, secret, above=Path(__file__).name) == []


@pytest.mark.parametrize(
    "cut", [pytest.param(n, id=f"T23 cut after {n}") for n in (1, 40, 90, 120)]
)
def test_a_cut_file_does_not_show_what_is_left_of_it(cut: int, path: Path) -> None:
    secret = stored(path)["keys"][0]["secret"]
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ConfigError) as refused:
        load_keyring(path)
    assert leaks(refused.value, secret[:12], above=Path(__file__).name) == []


def test_a_file_holds_its_secrets_once(path: Path) -> None:
    (entry,) = stored(path)["keys"]
    raw = base64.b64decode(entry["secret"])
    text = path.read_text(encoding="utf-8")
    assert [text.count(form) for form in forms(raw)] == [0, 0, 1]


# Crashes, disks, races


def python(program: str, *arguments: Path | str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )


ROTATE_FOR_EVER = """
import sys
from pathlib import Path
from counterfoil.keys import load_keyring, rotate
path = Path(sys.argv[1])
first, second = (row.id for row in load_keyring(path).rows)
while True:
    rotate(path, to=second)
    rotate(path, to=first)
    print("turned", flush=True)
"""


@pytest.mark.parametrize(
    "turns", [pytest.param(n, id=f"acc-A9 after {n} turns") for n in (1, 2, 5)]
)
def test_a_killed_writer_leaves_the_old_ring_or_the_new_one(turns: int, path: Path) -> None:
    add_key(path)
    with python(ROTATE_FOR_EVER, path) as writer:
        for _ in range(turns):
            writer.stdout.readline()  # type: ignore[union-attr] # a pipe was asked for
        writer.send_signal(signal.SIGKILL)
    assert sorted(statuses(path)) == [KeyStatus.ACTIVE, KeyStatus.OPENING]
    assert rotate(path).status is KeyStatus.ACTIVE


def test_unfinished_work_of_a_dead_writer_is_taken_away(path: Path) -> None:
    (path.parent / ".keys.json.unfinished").write_bytes(b"half")
    rotate(path)
    assert sorted(entry.name for entry in path.parent.iterdir()) == [".keys.json.lock", "keys.json"]


@pytest.mark.parametrize(
    "elsewhere", [pytest.param("target", id="T23 a link in place of the work")]
)
def test_unfinished_work_is_not_written_through_a_link(elsewhere: str, path: Path) -> None:
    target = path.parent / elsewhere
    target.write_bytes(b"kept")
    (path.parent / ".keys.json.unfinished").symlink_to(target)
    rotate(path)
    assert target.read_bytes() == b"kept"


ROTATE_ON_A_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from counterfoil.core.errors import UnavailableError
from counterfoil.keys import rotate
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
try:
    rotate(Path(sys.argv[1]))
except UnavailableError as error:
    print(error)
"""


@pytest.mark.parametrize("disk", [pytest.param("full", id="T25 a file may not grow")])
def test_a_disk_that_takes_no_more_leaves_the_former_file(disk: str, path: Path) -> None:
    before = path.read_bytes()
    with python(ROTATE_ON_A_FULL_DISK, path) as writer:
        said = writer.stdout.read()  # type: ignore[union-attr] # a pipe was asked for
    assert ("cannot be read or written" in said, path.read_bytes()) == (True, before)
    assert not (path.parent / ".keys.json.unfinished").exists()


REFUSED_WITHOUT_ASSERTIONS = """
import sys
from pathlib import Path
from counterfoil.core.envelope import CHECKPOINT_TYPE, seal, unseal
from counterfoil.core.errors import ConfigError, SignatureError
from counterfoil.keys import Purpose, keyring_of, load_keyring
ring, refused = keyring_of(bytes(range(32))), []
envelope = seal(CHECKPOINT_TYPE, b"{}", ring.signer(Purpose.LEASE))
for act in (
    lambda: load_keyring(Path(sys.argv[1])),
    lambda: keyring_of(b"short"),
    lambda: keyring_of(bytes(32)),
    lambda: unseal(envelope, CHECKPOINT_TYPE, ring.verifiers(Purpose.CHECKPOINT)),
):
    try:
        act()
    except (ConfigError, SignatureError) as error:
        refused.append(type(error).__name__)
print(sys.flags.optimize, *refused)
"""


@pytest.mark.parametrize("flag", [pytest.param("-O", id="T24 T23 T7 without assertions")])
def test_what_is_refused_does_not_rest_on_assertions(flag: str, path: Path) -> None:
    path.chmod(0o644)
    answer = subprocess.run(
        [sys.executable, flag, "-c", REFUSED_WITHOUT_ASSERTIONS, str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert answer.stdout.split() == ["1", *["ConfigError"] * 3, "SignatureError"]


ADD_FIVE = """
import sys
from pathlib import Path
from counterfoil.keys import add_key
for _ in range(5):
    add_key(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("count", [pytest.param(4, id="T21 four writers at once")])
def test_no_key_is_lost_between_writers(count: int, path: Path) -> None:
    writers = [python(ADD_FIVE, path) for _ in range(count)]
    for writer in writers:
        with writer:
            writer.wait()
    assert len(load_keyring(path).rows) == 1 + 5 * count


def test_a_writer_does_not_wait_for_ever(path: Path) -> None:
    held = os.open(path.parent / ".keys.json.lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with (
            pytest.raises(UnavailableError, match="another writer"),
            locked_folder(path, lock_ms=30),
        ):
            pass
    finally:
        os.close(held)


def test_a_reader_needs_no_lock(path: Path) -> None:
    with locked_folder(path):
        assert len(load_keyring(path).rows) == 1


def test_no_descriptor_is_left_open(path: Path) -> None:
    before = open_descriptors()
    for _ in range(20):
        load_keyring(path)
        rotate(path)
    path.chmod(0o644)
    for _ in range(20):
        with pytest.raises(CounterfoilError):
            load_keyring(path)
    assert open_descriptors() == before


def test_a_private_file_is_read_up_to_one_byte_beyond_its_bound(path: Path) -> None:
    other = path.with_name("trust.json")
    with locked_folder(other) as folder:
        write(other, folder, b"x" * 100)
    with opened_folder(other) as folder:
        assert (read(other, folder, bytes_max=10), is_there(other, folder)) == (b"x" * 11, True)
