"""The trust file: who may sign, and in which state of the disk it is believed."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from counterfoil.core.errors import ConfigError
from counterfoil.core.trust import NOBODY, Role, SignerEntry
from counterfoil.keys import Purpose, keyring_of
from counterfoil.keys.trustfile import add_signer, list_signers, load_trust, revoke_signer
from tests.support.people import ADA, BOB, RITA


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir(mode=0o700)
    return folder / "trust.json"


def test_a_missing_file_trusts_nobody(file: Path) -> None:
    assert load_trust(file) is NOBODY


def test_a_missing_folder_trusts_nobody(tmp_path: Path) -> None:
    assert load_trust(tmp_path / "none" / "trust.json") is NOBODY


def test_roles_are_roots_apart(file: Path) -> None:
    add_signer(file, ADA.entry)
    add_signer(file, RITA.entry)
    roots = load_trust(file)
    assert (list(roots.approvers), list(roots.reviewers)) == ([ADA.key.id], [RITA.key.id])


def test_a_revoked_signer_stays_in_the_file(file: Path) -> None:
    add_signer(file, ADA.entry)
    revoke_signer(file, "ada", now_ms=7)
    assert [entry.revoked_at_ms for entry in list_signers(file)] == [7]


def test_a_file_that_others_may_read_is_believed(file: Path) -> None:
    add_signer(file, ADA.entry)
    file.chmod(0o644)
    assert list(load_trust(file).approvers) == [ADA.key.id]


def _group_writes(file: Path) -> None:
    file.chmod(0o620)


def _others_write(file: Path) -> None:
    file.chmod(0o602)


def _folder_is_open(file: Path) -> None:
    file.parent.chmod(0o770)


def _is_a_link(file: Path) -> None:
    file.rename(file.with_name("other.json"))
    file.symlink_to("other.json")


def _dangles(file: Path) -> None:
    file.unlink()
    file.symlink_to("nothing.json")


def _is_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _names_a_member_twice(file: Path) -> None:
    file.write_text('{"format": 1, "format": 1, "signers": []}', encoding="utf-8")
    file.chmod(0o600)


def _has_another_format(file: Path) -> None:
    file.write_text('{"format": 2, "signers": []}', encoding="utf-8")


def _has_an_unknown_member(file: Path) -> None:
    stored = json.loads(file.read_bytes())
    stored["signers"][0]["is_admin"] = True
    file.write_text(json.dumps(stored), encoding="utf-8")


def _names_a_key_twice(file: Path) -> None:
    stored = json.loads(file.read_bytes())
    stored["signers"].append({**stored["signers"][0], "id": "ada2"})
    file.write_text(json.dumps(stored), encoding="utf-8")


def _has_a_short_key(file: Path) -> None:
    stored = json.loads(file.read_bytes())
    stored["signers"][0]["key"] = base64.b64encode(b"short").decode("ascii")
    file.write_text(json.dumps(stored), encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(_group_writes, "others may write", id="group may write"),
        pytest.param(_others_write, "others may write", id="others may write"),
        pytest.param(_folder_is_open, "another file there", id="folder open to others"),
        pytest.param(_is_a_link, "symbolic link", id="a link"),
        pytest.param(_dangles, "symbolic link", id="a dangling link"),
        pytest.param(_is_a_folder, "Is a directory", id="a folder"),
        pytest.param(_names_a_member_twice, "no trust file", id="a member twice"),
        pytest.param(_has_another_format, "no trust file", id="another format"),
        pytest.param(_has_an_unknown_member, "no trust file", id="an unknown member"),
        pytest.param(_names_a_key_twice, "a key twice", id="a key twice"),
        pytest.param(_has_a_short_key, "5 bytes", id="a short key"),
    ],
)
def test_a_file_is_not_believed(file: Path, spoil: Callable[[Path], None], message: str) -> None:
    add_signer(file, ADA.entry)
    spoil(file)
    with pytest.raises(ConfigError, match=message):
        load_trust(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_believed(file: Path) -> None:
    add_signer(file, ADA.entry)
    os.chown(file, 12_345, 12_345)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        load_trust(file)


def test_a_name_is_given_once(file: Path) -> None:
    add_signer(file, ADA.entry)
    with pytest.raises(ConfigError, match="names a signer ada already"):
        add_signer(file, BOB.but(id="ada").entry)


def test_a_key_has_one_role(file: Path) -> None:
    add_signer(file, ADA.entry)
    with pytest.raises(ConfigError, match="a key twice"):
        add_signer(file, ADA.but(id="ada2", role=Role.REVIEWER).entry)


def test_a_signer_is_revoked_once(file: Path) -> None:
    add_signer(file, ADA.entry)
    revoke_signer(file, "ada", now_ms=7)
    with pytest.raises(ConfigError, match="revoked before"):
        revoke_signer(file, "ada", now_ms=8)


def test_a_validity_that_never_was_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="valid until before"):
        add_signer(file, ADA.but(valid_from_ms=9, valid_until_ms=9).entry)


def test_one_secret_has_another_key_for_each_purpose() -> None:
    secret = bytes(range(32))
    ring = keyring_of(secret)
    codes = {ring.signer(purpose).sign(b"message") for purpose in Purpose}
    assert len(codes) == len(Purpose)


def test_an_hmac_signer_is_named_by_its_source(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = bytes(range(32))
    monkeypatch.setenv("GATE_SECRET", secret.hex())
    entry = SignerEntry(
        id="gate", role=Role.APPROVER, algorithm="hmac-sha256", key="env:GATE_SECRET"
    )
    add_signer(file, entry)
    signer = keyring_of(secret).signer(Purpose.APPROVER)
    code = signer.sign(b"message")
    assert load_trust(file).approvers[signer.id].verifier.verify(b"message", code)


def test_a_signer_is_revoked_also_where_its_secret_is_gone(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATE_SECRET", bytes(range(32)).hex())
    entry = SignerEntry(
        id="gate", role=Role.APPROVER, algorithm="hmac-sha256", key="env:GATE_SECRET"
    )
    add_signer(file, entry)
    monkeypatch.delenv("GATE_SECRET")
    assert revoke_signer(file, "gate", now_ms=7).revoked_at_ms == 7
