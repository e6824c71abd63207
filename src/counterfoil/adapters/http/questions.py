"""Look-ups of a service without our receipts, and observations of it.

Absent is only what the service says in so many words: a status that is declared to mean
it, or a place in its answer that is there and empty.
"""

from collections.abc import Callable
from hashlib import sha256

from msgspec.structs import replace

from counterfoil.adapters.http.asking import Site, Wanted, plain_request, question_request, wire_key
from counterfoil.adapters.http.declare import Endpoint, Service
from counterfoil.adapters.http.meaning import Shown, document_of, is_success, shown
from counterfoil.adapters.http.template import Template, parse_template
from counterfoil.adapters.http.wire import Answer, Deadline
from counterfoil.core.canonical import bounded
from counterfoil.core.errors import UnavailableError
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import ABSENT, LookUp, Receipt, found, unknown
from counterfoil.core.receipt import Answer as Said
from counterfoil.core.words import IntentDigest, Json, RunId
from counterfoil.pointers import at, moment_at, text_at
from counterfoil.ports import Observation

ETAG_CHARS_MAX = 200
"""A longer one is no validator, and not kept with each state."""


def asked(site: Site, wanted: Wanted, look: Callable[[], EnvironmentState]) -> LookUp:
    """Ask a service for the receipt of a key.

    Args:
        site: The service.
        wanted: What is asked for, of a kind that declares its look-up.
        look: Observes the environment, once something was found.

    Raises:
        CounterfoilError: There was no answer.
    """
    endpoint = wanted.kind.endpoint
    question = endpoint.look_up
    if question is None:
        return unknown(f"{endpoint.name} cannot be asked")
    request = question_request(site.service, wanted, question)
    answer = site.exchange.send(request, wanted.deadline)
    if answer.status in question.absent:
        return ABSENT
    if not is_success(answer) or answer.body is None:
        return unknown(f"the look-up was answered with status {answer.status}")
    document = document_of(answer)
    found_at = at(document, question.receipt)
    if found_at is None:
        is_empty = at(document, question.receipt.rpartition("/")[0]) is not None
        is_empty = is_empty or (not question.receipt and answer.body.strip() == b"null")
        return ABSENT if is_empty else unknown("the look-up's answer has no place for a receipt")
    key = wire_key(wanted.key)
    says = shown(endpoint.fields, found_at, key)
    if endpoint.fields.key and says.key != key:
        return unknown("the look-up shows the receipt of another key")
    receipt = receipt_of(site.service, wanted, found_at, look())
    if receipt.run_id != wanted.run_id or lacks_marks(endpoint, says):
        return LookUp(answer=Said.FOUND_OTHER, receipt=receipt)
    return found(receipt)


def lacks_marks(endpoint: Endpoint, says: Shown) -> bool:
    """Return whether what each of our calls leaves in a receipt is not there."""
    fields = endpoint.fields
    return bool((fields.run and not says.run) or (fields.digest and not says.digest))


def receipt_of(
    service: Service, wanted: Wanted, document: Json, poststate: EnvironmentState
) -> Receipt:
    """Return the receipt of an effect, with what the service shows of it."""
    says = shown(wanted.kind.endpoint.fields, document, wire_key(wanted.key))
    return Receipt(
        id=says.id,
        adapter=service.name,
        kind=wanted.kind.spec.name,
        run_id=RunId(says.run) if says.run else wanted.run_id,
        key=wanted.key,
        digest=IntentDigest(says.digest),
        level=wanted.kind.spec.level,
        poststate=poststate,
        committed_at_ms=says.committed_at_ms,
        result=bounded(document),
    )


def watched(site: Site, deadline: Deadline, known: EnvironmentState) -> Observation:
    """Observe the environment of a service that is watched.

    Args:
        site: The service.
        deadline: When it must be over.
        known: Its identity as far as it is known without a look.

    Raises:
        UnavailableError: It does not show what it should.
        CounterfoilError: There was no answer.
    """
    service, watch = site.service, site.service.watch
    if watch is None:
        return Observation(state=known)
    url = parse_template(watch.url, "watch")
    request = plain_request(service, "GET", f"{url.origin}{_tail(url)}", deadline)
    answer = site.exchange.send(request, deadline)
    if not is_success(answer) or answer.body is None:
        raise UnavailableError(f"the environment was answered with status {answer.status}")
    document = document_of(answer)
    version = _version(document, watch.version)
    named = text_at(document, watch.instance) if watch.instance else known.instance
    if named and watch.instance and service.receipts:
        named = f"{named} {known.instance}"  # a service that lost its receipts is another one
    if version is None or not named:
        raise UnavailableError("the environment's answer shows no version, or no instance")
    state = replace(
        known,
        instance=named,
        version=version,
        fingerprint=_fingerprint(answer, document, watch.fingerprint),
        account=text_at(document, watch.account) if watch.account else known.account,
    )
    return Observation(state=state, facts={"answer": bounded(document)})


def _tail(url: Template) -> str:
    return f"{url.path}?{url.query}" if url.query else url.path


def _version(document: Json, pointer: str) -> int | None:
    value = at(document, pointer)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return moment_at(document, pointer) or None


def _fingerprint(answer: Answer, document: Json, pointer: str) -> str:
    if pointer:
        return text_at(document, pointer)
    etag = answer.headers.get("etag", "")
    if etag and etag.isascii() and etag.isprintable() and len(etag) <= ETAG_CHARS_MAX:
        return etag
    return sha256(answer.body or b"").hexdigest()
