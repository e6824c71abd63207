"""Every limit of the product as a named constant with its reason.

A value out of bounds is refused before anything is durable, with the bound in the
message. The same constant holds at every door.
"""

IDENTIFIER_CHARS_MAX = 200
"""Run, task, action and signer ids: they appear in rows, paths and terminals."""

KEY_CHARS_MAX = 200
"""Idempotency keys: below the 255 that payment services accept."""

PATH_BYTES_MAX = 4096
"""Paths: PATH_MAX of Linux."""

ARGUMENTS_BYTES_MAX = 256 * 1024
"""Canonical arguments of one action: a document, not an archive."""

RESULT_BYTES_MAX = 64 * 1024
"""Result inside a receipt; larger ones are kept by digest and reference."""

STATE_OWN_BYTES_MAX = 64 * 1024
"""What a run keeps open besides its pending arguments and an observed receipt."""

SUBMITTED_BYTES_MAX = 16 * 1024
"""Canonical arguments that a run is submitted with: they are in each of its states."""

STATE_BYTES_MAX = STATE_OWN_BYTES_MAX + 2 * ARGUMENTS_BYTES_MAX + RESULT_BYTES_MAX
"""State of a checkpoint, with a pending intent and the case that holds it at their bounds."""

EVENTS_BYTES_MAX = 1024 * 1024
"""Events of one commit: four events, one with arguments at their bound."""

EVENTS_PER_COMMIT_MAX = 4
"""Receipt, transition, next intent, and one notice of drift."""

HEADER_BYTES_MAX = 4096
"""What the signature covers; it never holds history."""

ENVELOPE_BYTES_MAX = 16 * 1024
"""A header in base64 with its signatures."""

INTEGER_MAX = 2**53 - 1
"""Largest integer that every JSON reader keeps exactly (RFC 8785, I-JSON)."""

JSON_DEPTH_MAX = 64
"""Nesting; deeper values exhaust the stack of common readers."""

TEXT_CHARS_MAX = 4096
"""Free text for people: goals, reasons."""

FRONTIER_HASHES_MAX = 64
"""One hash for each bit of a 64-bit trace size."""

ADAPTERS_PER_TASK_MAX = 16
"""Environments that one task may touch: each is observed on recovery."""

TASK_BYTES_MAX = 1024 * 1024
"""A task file."""

SENDS_MAX = 8
"""Calls under one key before a person is asked."""

STEPS_DEFAULT_MAX = 1_000_000
"""Steps and proposals of a task that names no budget."""
