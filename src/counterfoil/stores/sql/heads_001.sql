-- One row about the register itself. `floor_ms` is the latest moment it has acted on:
-- its clock never reads less, so a wall clock set back revives no lease.
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
    status        TEXT    NOT NULL CHECK (status IN ('active', 'frozen', 'terminal'))
) STRICT, WITHOUT ROWID;

-- Moves only when a run changes its status, so a commit does not touch it.
CREATE INDEX head_active ON head (run_id) WHERE status = 'active';
