"""A throwaway server is a real one, and leaves nothing behind."""

import os
from pathlib import Path

import psycopg
import pytest

from counterfoil.core.errors import ConfigError, UsageError
from counterfoil.local import postgres as local
from counterfoil.local.postgres import LocalPostgres


def test_a_server_keeps_what_it_acknowledged_through_a_crash() -> None:
    with LocalPostgres() as server:
        url = server.create_database("shop")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE sold AS SELECT 7 AS pieces")
            assert connection.execute("SHOW fsync").fetchone() == ("on",)
        port, first = server.port, server.pid
        server.crash()
        with pytest.raises(UsageError, match="does not run"):
            _ = server.pid
        server.start()
        server.start()
        assert (server.port, server.url("shop")) == (port, url)
        assert server.pid != first
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT pieces FROM sold").fetchone() == (7,)
        second = server.pid
        server.restart()
        assert server.pid != second


def test_a_server_leaves_no_folder_and_no_process_behind() -> None:
    with LocalPostgres() as server:
        folder, pid = server.folder, server.pid
        assert (folder / "data").is_dir()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with LocalPostgres() as server:
        server.stop()
    assert not server.folder.exists()


def test_a_server_lets_nobody_in_without_its_password() -> None:
    with LocalPostgres() as server:
        url = server.url().replace(server.password, "guess")
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(url)


def test_a_machine_without_postgresql_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(local, "DEBIAN", tmp_path)
    with pytest.raises(ConfigError, match="PostgreSQL is not installed"), LocalPostgres():
        pass


def test_programs_are_found_without_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for version in ("9", "15", "17", "beta"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        for name in ("initdb", "postgres")[: 1 if version == "17" else 2]:
            (folder / name).touch()
    monkeypatch.setattr(local, "DEBIAN", tmp_path)
    assert local.find_binaries() == tmp_path / "15" / "bin"
