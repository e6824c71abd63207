"""Keys of people: made once, for their owner alone, and loaded only as they were made."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from counterfoil.core.errors import ConfigError
from counterfoil.core.trust import Role, SignerEntry, public_key
from counterfoil.keys.signing import load_key, load_signer, make_key, public_text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder / "ada.pem"


def _nobody() -> bytes:
    raise AssertionError("no passphrase is needed")


def test_a_key_is_for_its_owner_alone(file: Path) -> None:
    make_key(file)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_key_that_is_there_is_kept(file: Path) -> None:
    made = make_key(file)
    with pytest.raises(ConfigError, match="kept as it is"):
        make_key(file)
    assert load_key(file, _nobody).id == made.id


def test_what_a_key_signs_its_public_key_verifies(file: Path) -> None:
    made = make_key(file)
    entry = SignerEntry(id="ada", role=Role.APPROVER, key=public_text(made))
    code = load_key(file, _nobody).sign(b"message")
    assert public_key(entry).verify(b"message", code)


def test_an_encrypted_key_opens_with_its_passphrase(file: Path) -> None:
    made = make_key(file, passphrase=b"correct horse")
    assert load_key(file, lambda: b"correct horse").id == made.id


def test_an_encrypted_key_does_not_open_with_another(file: Path) -> None:
    make_key(file, passphrase=b"correct horse")
    with pytest.raises(ConfigError, match="the passphrase is wrong"):
        load_key(file, lambda: b"battery staple")


def test_an_empty_passphrase_is_none(file: Path) -> None:
    with pytest.raises(ConfigError, match="passphrase is empty"):
        make_key(file, passphrase=b"")


def test_a_key_does_not_show_itself(file: Path) -> None:
    made = make_key(file)
    assert "key=" not in repr(made).replace("key_id=", "")


def _readable(file: Path) -> None:
    file.chmod(0o640)


def _link(file: Path) -> None:
    file.rename(file.with_name("other.pem"))
    file.symlink_to("other.pem")


def _gone(file: Path) -> None:
    file.unlink()


def _no_key(file: Path) -> None:
    file.write_text("no key\n", encoding="utf-8")


def _of_another_curve(file: Path) -> None:
    key = generate_private_key(SECP256R1())
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(_readable, "open to others", id="others may read it"),
        pytest.param(_link, "symbolic link", id="a link"),
        pytest.param(_gone, "there is no file", id="no file"),
        pytest.param(_no_key, "no key in PEM", id="no key"),
        pytest.param(_of_another_curve, "no Ed25519 key", id="another algorithm"),
    ],
)
def test_a_key_file_is_refused(file: Path, spoil: Callable[[Path], None], message: str) -> None:
    make_key(file)
    spoil(file)
    with pytest.raises(ConfigError, match=message):
        load_key(file, _nobody)


def test_one_secret_signs_apart_for_each_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATE_SECRET", bytes(range(32)).hex())
    codes = {load_signer("env:GATE_SECRET", role, _nobody).sign(b"message") for role in Role}
    assert len(codes) == len(Role)
