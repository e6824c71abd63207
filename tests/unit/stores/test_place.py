"""A database lies on this machine's own disk, and is nobody else's to touch."""

import os
import stat
from collections.abc import Generator
from pathlib import Path

import pytest

from counterfoil.core.errors import ConfigError, CounterfoilError, UnavailableError
from counterfoil.stores import place
from counterfoil.stores.sqlite import open_heads, open_inbox, open_store
from tests.support.store_process import heads_at, store_at

MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:27 / /home rw - nfs4 server:/home rw,vers=4.2
31 30 0:28 / /home/me/local\\040disk rw shared:2 master:1 - xfs /dev/vdb rw
32 22 0:29 / /mnt/over rw - ext4 /dev/vdc rw
33 22 0:30 / /mnt/over rw - fuse.sshfs host: rw
broken line
"""


@pytest.fixture
def open_umask() -> Generator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS, encoding="utf-8")
    return table


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("row", [pytest.param("T23", id="T23")])
def test_files_and_folders_are_created_for_us_alone(
    row: str, tmp_path: Path, open_umask: None
) -> None:
    store = open_store(tmp_path / "a" / "b" / "store.db", create=True)
    folder = tmp_path / "a" / "b"
    modes = {path.name: mode(path) for path in (folder.parent, folder, *folder.iterdir())}
    store.close()
    assert modes == {
        "a": 0o700,
        "b": 0o700,
        "store.db": 0o600,
        "store.db-open": 0o600,
        "store.db-wal": 0o600,
        "store.db-shm": 0o600,
    }


@pytest.mark.parametrize(
    "suffix",
    [
        pytest.param("", id="T23 the database"),
        pytest.param("-wal", id="T23 its log"),
        pytest.param("-shm", id="T23 its shared memory"),
    ],
)
@pytest.mark.parametrize("loose", [0o640, 0o604, 0o610, 0o666])
def test_a_file_that_others_may_open_is_refused_with_the_mend(
    suffix: str, loose: int, tmp_path: Path
) -> None:
    path = tmp_path / "store.db"
    open_store(path, create=True).close()
    touched = tmp_path / f"store.db{suffix}"
    touched.chmod(loose)
    with pytest.raises(ConfigError, match=f"run `chmod 600 {touched}`"):
        open_store(path, create=False)
    touched.chmod(0o600)
    open_store(path, create=False).close()


@pytest.mark.parametrize(
    ("loose", "mended"),
    [
        pytest.param(0o770, 0o750, id="T23 its group"),
        pytest.param(0o707, 0o705, id="T23 everybody"),
        pytest.param(0o1777, 0o1755, id="T23 everybody, sticky"),
    ],
)
def test_a_folder_that_others_may_change_is_refused_with_the_mend(
    loose: int, mended: int, tmp_path: Path
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(loose)
    with pytest.raises(ConfigError, match=f"run `chmod go-w {folder}`"):
        heads_at(tmp_path)
    assert list(folder.iterdir()) == []
    folder.chmod(mended)
    heads_at(tmp_path).close()


@pytest.mark.parametrize("row", [pytest.param("T23", id="T23")])
def test_another_users_file_is_refused(row: str, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        foreign = tmp_path / "foreign.db"
        foreign.touch(mode=0o600)
        os.chown(foreign, 65_534, 65_534)
    else:
        foreign = Path("/etc/hostname")
    with pytest.raises(ConfigError, match="belongs to user"):
        place.check_file(foreign)


def test_a_database_that_is_a_link_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "real.db", create=True).close()
    (tmp_path / "store.db").symlink_to(tmp_path / "real.db")
    with pytest.raises(ConfigError, match="symbolic link"):
        open_store(tmp_path / "store.db", create=True)


def test_a_link_to_nothing_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "store.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(ConfigError, match="symbolic link"):
        open_store(tmp_path / "store.db", create=True)
    assert not (tmp_path / "elsewhere.db").exists()


def test_a_folder_may_be_reached_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    open_store(tmp_path / "linked" / "store.db", create=True).close()
    assert (tmp_path / "real" / "store.db").is_file()


def test_a_folder_in_the_place_of_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="is not a file"):
        open_store(tmp_path / "store.db", create=True)


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").touch(mode=0o600)
    with pytest.raises((ConfigError, UnavailableError)):
        heads_at(tmp_path)


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        pytest.param("/", "ext4", id="the root"),
        pytest.param("/var/lib", "ext4", id="below the root"),
        pytest.param("/home/me", "nfs4", id="below a mount"),
        pytest.param("/home", "nfs4", id="the mount itself"),
        pytest.param("/homework", "ext4", id="a name that only begins alike"),
        pytest.param(
            "/home/me/local disk/state", "xfs", id="an escaped name, inside another mount"
        ),
        pytest.param("/mnt/over", "fuse.sshfs", id="a mount over a mount"),
    ],
)
def test_the_longest_and_last_mount_counts(folder: str, kind: str, mounts: Path) -> None:
    assert place.mounted_kind(Path(folder), mounts) == kind


def test_a_table_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert place.mounted_kind(tmp_path, tmp_path / "missing") == ""


def test_this_machine_says_what_its_disk_is(tmp_path: Path) -> None:
    assert place.mounted_kind(tmp_path) not in ("", *place.NETWORK_KINDS)


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs", "ceph", "lustre"]
)
def test_a_network_file_system_is_refused(kind: str, tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(f"22 1 0:1 / / rw - {kind} server:/ rw\n", encoding="utf-8")
    folder = tmp_path / "state"
    opens = (
        lambda: open_store(folder / "store.db", create=True, mounts=table),
        lambda: open_inbox(folder / "inbox.db", create=True, mounts=table),
        lambda: open_heads(
            folder / "heads.db",
            create=True,
            now_ms=lambda: 0,
            incarnation=lambda: "random",
            mounts=table,
        ),
    )
    for open_one in opens:
        with pytest.raises(ConfigError, match=rf"network file system \({kind}\)"):
            open_one()
    assert not any(folder.iterdir())


def test_a_file_on_a_disk_that_became_a_network_one_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path / "store.db", create=True).close()
    table = tmp_path / "mountinfo"
    table.write_text(f"22 1 0:1 / {tmp_path} rw - nfs server:/ rw\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="local disk"):
        open_store(tmp_path / "store.db", create=False, mounts=table)


def test_two_stores_in_two_places_open_side_by_side(tmp_path: Path) -> None:
    store, heads = store_at(tmp_path), heads_at(tmp_path)
    store.close()
    heads.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["project", "state"]


def test_a_refusal_is_one_of_ours(tmp_path: Path) -> None:
    with pytest.raises(CounterfoilError):
        place.make_folder(Path("/proc/self/nothing/here"))
