"""Receipts for an HTTP service: the first answer to a key is kept, and given again.

`ReceiptMiddleware` wraps any ASGI application. A request with an `Idempotency-Key` is
claimed in a journal (SQLite or PostgreSQL) before the application sees it, and its answer
is in the journal before a byte of it is sent. Where the application writes the receipt in
its own transaction, effect and receipt are one, and a crash leaves no doubt.

Source: draft-ietf-httpapi-idempotency-key-header, "The Idempotency-Key HTTP Header Field".
"""

from counterfoil.integrations.asgi.answer import Answer
from counterfoil.integrations.asgi.journal import Journal
from counterfoil.integrations.asgi.middleware import ReceiptMiddleware
from counterfoil.integrations.asgi.opening import install_journal, open_journal
from counterfoil.integrations.asgi.promised import PromisedReceipt, receipt_of
from counterfoil.integrations.asgi.rules import Commits, Rules

__all__ = (
    "Answer",
    "Commits",
    "Journal",
    "PromisedReceipt",
    "ReceiptMiddleware",
    "Rules",
    "install_journal",
    "open_journal",
    "receipt_of",
)
