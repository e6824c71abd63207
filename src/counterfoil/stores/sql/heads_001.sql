-- One row about the register itself. The latest moment it has acted on is `floor_ms` or the
-- latest `acted_at_ms` of the heads that are ahead of it, whichever is later: its clock
-- never reads less, so a wall clock set back revives no lease.
CREATE TABLE register (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    incarnation TEXT    NOT NULL CHECK (incarnation <> ''),
    floor_ms    INTEGER NOT NULL
) STRICT;

-- One row per run, never deleted.
CREATE TABLE head (
    run_id        TEXT    NOT NULL PRIMARY KEY,
    generation    INTEGER NOT NULL CHECK (generation >= 0),
    checkpoint    BLOB    NOT NULL CHECK (length(checkpoint) = 32),
    owner         TEXT    NOT NULL,
    nonce         TEXT    NOT NULL,
    lease_version INTEGER NOT NULL CHECK (lease_version >= 1),
    expires_at_ms INTEGER NOT NULL,
    status        TEXT    NOT NULL CHECK (status IN ('active', 'frozen', 'terminal')),
    acted_at_ms   INTEGER NOT NULL,  -- of the latest advance
    is_ahead      INTEGER NOT NULL CHECK (is_ahead IN (0, 1))  -- 0: `floor_ms` is no less
) STRICT, WITHOUT ROWID;

-- What a worker looks through for runs to claim: those that nobody holds in the order in which they
-- fall due, and those that are held. A commit moves neither.
CREATE INDEX head_free ON head (expires_at_ms, run_id) WHERE status = 'active' AND nonce = '';
CREATE INDEX head_held ON head (run_id) WHERE status = 'active' AND nonce <> '';

-- Heads that were advanced since another write last moved `floor_ms`: those of live sessions.
CREATE INDEX head_ahead ON head (run_id) WHERE is_ahead = 1;
