"""Ask the nodes of an etcd what they are; nothing is written, and no password is sent."""

import os
import ssl
from base64 import b64encode

import httpx
import msgspec

from counterfoil.core.errors import ConfigError
from counterfoil.stores.etcd_address import Address, parse_address
from counterfoil.stores.facts import EtcdFacts, EtcdMember

SECONDS = 3.0
"""Longest wait for one answer."""

NO_USER = "user name is empty"
"""What etcd says to who asks without a user, where it wants one."""


class _Status(msgspec.Struct, frozen=True):
    version: str = ""
    leader: str = "0"


class _Members(msgspec.Struct, frozen=True):
    members: tuple[msgspec.Raw, ...] = ()


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""


def etcd_facts(url: str) -> EtcdFacts:
    """Return what each node of `url` says of itself, and one of them of the cluster.

    Args:
        url: As `open_heads` takes it.

    Raises:
        ConfigError: The url is malformed, or a certificate cannot be read.
    """
    address = parse_address(url, os.environ)
    timeout = httpx.Timeout(SECONDS)
    with httpx.Client(verify=_trust(address), trust_env=False, timeout=timeout) as client:
        members = tuple(_member(client, endpoint) for endpoint in address.endpoints)
        answering = [
            endpoint
            for endpoint, member in zip(address.endpoints, members, strict=True)
            if not member.trouble
        ]
        first = answering[0] if answering else ""
        return EtcdFacts(
            members=members,
            cluster_size=_cluster_size(client, first) if first else 0,
            is_encrypted=address.uses_tls,
            demands_users=_demands_users(client, first, address.prefix) if first else None,
        )


def _member(client: httpx.Client, endpoint: str) -> EtcdMember:
    name = endpoint.partition("://")[2]
    try:
        answer = client.post(f"{endpoint}/v3/maintenance/status", content=b"{}")
    except httpx.HTTPError as error:
        return EtcdMember(name=name, trouble=_plain(error))
    status = _Status()
    if answer.is_success:
        try:
            status = msgspec.json.decode(answer.content, type=_Status)
        except msgspec.MsgspecError:
            status = _Status()
    if not status.version:
        return EtcdMember(name=name, trouble=f"it is no etcd ({answer.status_code})")
    return EtcdMember(name=name, version=status.version, has_leader=status.leader != "0")


def _plain(error: httpx.HTTPError) -> str:
    """Return what went wrong, in words of ours: a message of TLS may be anything."""
    match error:
        case httpx.ConnectTimeout() | httpx.ReadTimeout():
            return "no answer in time"
        case httpx.ConnectError():
            return "no connection"
        case _:
            return type(error).__name__


def _cluster_size(client: httpx.Client, endpoint: str) -> int:
    """Return how many members the cluster has; 0 when it does not say."""
    try:
        answer = client.post(f"{endpoint}/v3/cluster/member/list", content=b"{}")
        return len(msgspec.json.decode(answer.content, type=_Members).members)
    except (httpx.HTTPError, msgspec.MsgspecError):
        return 0


def _demands_users(client: httpx.Client, endpoint: str, prefix: str) -> bool | None:
    """Return whether a read by nobody is refused; None when nobody can say."""
    key = b64encode(f"{prefix}/".encode()).decode()
    body = msgspec.json.encode({"key": key, "limit": "1", "keys_only": True})
    try:
        answer = client.post(f"{endpoint}/v3/kv/range", content=body)
        if answer.is_success:
            return False
        refusal = msgspec.json.decode(answer.content, type=_Refusal)
    except (httpx.HTTPError, msgspec.MsgspecError):
        return None
    return True if NO_USER in refusal.message else None


def _trust(address: Address) -> ssl.SSLContext | bool:
    if not address.uses_tls:
        return False  # nothing is encrypted, so that there is nothing to verify
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.cert is not None:
            context.load_cert_chain(address.cert, address.key)
    except OSError as error:
        raise ConfigError(
            f"a certificate or key in the url of the etcd cannot be used: {error.strerror}",
            move="check ca, cert and key in it, and who may read these files",
        ) from error
    return context
