"""Certificates for throwaway servers: a root of their own, and what it signs.

Made for one machine and a few hours; the keys lie beside the certificates.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOUR = timedelta(hours=1)
LIFE = timedelta(days=30)
"""Longer than any trial; what is left behind by mistake ends by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificates:
    """Files of one root, one server and one client; keys of mode 600.

    Attributes:
        ca: Certificate of the root.
        server: Certificate of the server, with both usages: etcd's gateway uses it to
            call etcd itself.
        server_key: Its private key.
        client: Certificate of a client.
        client_key: Its private key.
    """

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pair:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(folder: Path) -> Certificates:
    """Make a root, a server's and a client's certificate in `folder`.

    Raises:
        OSError: The folder cannot be written to.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    root = _signed("counterfoil throwaway root", None)
    _write(folder, "ca", root)
    for name in ("server", "client"):
        _write(folder, name, _signed(f"counterfoil throwaway {name}", root))
    return Certificates(
        ca=folder / "ca.pem",
        server=folder / "server.pem",
        server_key=folder / "server.key",
        client=folder / "client.pem",
        client_key=folder / "client.key",
    )


def _signed(name: str, root: _Pair | None) -> _Pair:
    """Return a certificate that `root` signs, or a root that signs itself.

    None has a common name: etcd's gateway refuses a client that has one, once etcd asks
    who calls.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if root is None else root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - HOUR)
        .not_valid_after(now + LIFE)
        .add_extension(
            x509.BasicConstraints(ca=root is None, path_length=0 if root is None else None),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(is_root=root is None), critical=True)
    )
    if root is not None:
        builder = (
            builder.add_extension(_host_names(), critical=False)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(root.key.public_key()),
                critical=False,
            )
        )
    signer = key if root is None else root.key
    return _Pair(certificate=builder.sign(signer, hashes.SHA256()), key=key)


def _usage(*, is_root: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_root,
        crl_sign=is_root,
        encipher_only=False,
        decipher_only=False,
    )


def _host_names() -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    names.append(x509.IPAddress(ip_address("127.0.0.1")))
    return x509.SubjectAlternativeName(names)


def _write(folder: Path, name: str, pair: _Pair) -> None:
    pem = pair.certificate.public_bytes(serialization.Encoding.PEM)
    (folder / f"{name}.pem").write_bytes(pem)
    key = folder / f"{name}.key"
    key.touch(mode=0o600)
    key.write_bytes(
        pair.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
