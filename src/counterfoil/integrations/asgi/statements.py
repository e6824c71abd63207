"""The journal's tables and statements, in the SQL that SQLite and PostgreSQL share.

`{at}` stands for what comes before the name of a table, `{bytes}` for the type of bytes,
`{long}` for integers of 64 bits, `{skip}` for what passes over locked rows, and `?` for a value.
"""

VERSION = 1
"""Of the tables."""

TABLES = (
    """CREATE TABLE IF NOT EXISTS {at}counterfoil_journal (
        id {long} PRIMARY KEY CHECK (id = 1),
        version {long} NOT NULL,
        instance TEXT NOT NULL,
        secret TEXT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS {at}counterfoil_receipts (
        client TEXT NOT NULL,
        key TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('in_flight', 'done', 'forbidden')),
        fingerprint TEXT NOT NULL,
        intent TEXT NOT NULL,
        run TEXT NOT NULL,
        lease_version {long} NOT NULL,
        nonce TEXT NOT NULL,
        generation {long} NOT NULL,
        checkpoint TEXT NOT NULL,
        statement TEXT NOT NULL,
        commits TEXT NOT NULL,
        attempt TEXT NOT NULL,
        started_at_ms {long} NOT NULL,
        lease_until_ms {long} NOT NULL,
        status {long} NOT NULL,
        headers TEXT NOT NULL,
        body {bytes} NOT NULL,
        committed_at_ms {long} NOT NULL,
        expires_at_ms {long} NOT NULL,
        PRIMARY KEY (client, key))""",
    """CREATE INDEX IF NOT EXISTS counterfoil_receipts_expiry
        ON {at}counterfoil_receipts (expires_at_ms) WHERE state = 'done'""",
    """CREATE INDEX IF NOT EXISTS counterfoil_receipts_open
        ON {at}counterfoil_receipts (client, run) WHERE state = 'in_flight'""",
    """CREATE TABLE IF NOT EXISTS {at}counterfoil_fences (
        client TEXT NOT NULL,
        run TEXT NOT NULL,
        lease_version {long} NOT NULL,
        nonce TEXT NOT NULL,
        generation {long} NOT NULL,
        checkpoint TEXT NOT NULL,
        PRIMARY KEY (client, run))""",
)

FOUND = """INSERT INTO {at}counterfoil_journal (id, version, instance, secret)
    VALUES (1, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING"""
INSTANCE = "SELECT version, instance, secret FROM {at}counterfoil_journal WHERE id = 1"

COLUMNS = """client, key, state, fingerprint, intent, run, lease_version, nonce, generation,
    checkpoint, statement, commits, attempt, started_at_ms, lease_until_ms, status, headers, body,
    committed_at_ms, expires_at_ms"""
ROW = f"SELECT {COLUMNS} FROM {{at}}counterfoil_receipts WHERE client = ? AND key = ?"  # noqa: S608 - our own columns
INSERT = f"""INSERT INTO {{at}}counterfoil_receipts ({COLUMNS})
    VALUES ({", ".join("?" * 20)}) ON CONFLICT (client, key) DO NOTHING RETURNING 1"""  # noqa: S608 - our own columns

TAKE_OVER = """UPDATE {at}counterfoil_receipts
    SET lease_version = ?, nonce = ?, generation = ?, checkpoint = ?, statement = ?, commits = ?,
        attempt = ?, started_at_ms = ?, lease_until_ms = ?
    WHERE client = ? AND key = ? AND state = 'in_flight' AND attempt = ? RETURNING 1"""
FINISH = """UPDATE {at}counterfoil_receipts
    SET state = 'done', commits = ?, status = ?, headers = ?, body = ?, committed_at_ms = ?,
        expires_at_ms = ?
    WHERE client = ? AND key = ? AND state = 'in_flight' AND attempt = ? RETURNING 1"""
FORBID = """UPDATE {at}counterfoil_receipts
    SET state = 'forbidden', committed_at_ms = ?
    WHERE client = ? AND key = ? AND state = 'in_flight' AND attempt = ? RETURNING 1"""
DROP = """DELETE FROM {at}counterfoil_receipts
    WHERE client = ? AND key = ? AND state = ? AND attempt = ? RETURNING 1"""
SUPERSEDE = """DELETE FROM {at}counterfoil_receipts
    WHERE client = ? AND run = ? AND state = 'in_flight' AND commits = 'together'
        AND (lease_version <> ? OR nonce <> ?)"""
PURGE = """DELETE FROM {at}counterfoil_receipts WHERE (client, key) IN (
    SELECT client, key FROM {at}counterfoil_receipts
    WHERE state = 'done' AND expires_at_ms <= ? ORDER BY expires_at_ms LIMIT ?{skip})"""
OPEN = f"""SELECT {COLUMNS} FROM {{at}}counterfoil_receipts
    WHERE state = 'in_flight' AND commits <> 'together' AND lease_until_ms <= ?
        AND (started_at_ms, client, key) > (?, ?, ?)
    ORDER BY started_at_ms, client, key LIMIT ?"""  # noqa: S608 - our own columns
UNSETTLED = f"""SELECT {COLUMNS} FROM {{at}}counterfoil_receipts
    WHERE state = 'in_flight' AND commits <> 'together' AND attempt = ?"""  # noqa: S608 - our own columns

STANDING_FENCE = """SELECT lease_version, nonce, generation, checkpoint
    FROM {at}counterfoil_fences WHERE client = ? AND run = ?"""
RAISE_FENCE = """INSERT INTO {at}counterfoil_fences AS held
    (client, run, lease_version, nonce, generation, checkpoint) VALUES (?, ?, ?, ?, 0, '')
    ON CONFLICT (client, run) DO UPDATE
    SET lease_version = excluded.lease_version, nonce = excluded.nonce
    WHERE held.lease_version < excluded.lease_version
        OR (held.lease_version = excluded.lease_version AND held.nonce = excluded.nonce)
    RETURNING generation, checkpoint"""
SERVE = """UPDATE {at}counterfoil_fences SET generation = ?, checkpoint = ?
    WHERE client = ? AND run = ? AND generation <= ?"""
