-- Checkpoints of many runs, append-only but for pruning. `run` gives each run a short
-- number, so that no row repeats its name, and holds what a put compares.
CREATE TABLE run (
    number        INTEGER PRIMARY KEY,
    run_id        TEXT    NOT NULL UNIQUE,
    lease_version INTEGER NOT NULL,  -- of the mark; -1 when there is none
    state_floor   INTEGER NOT NULL   -- no checkpoint of a generation below it has a state
) STRICT;

-- Rows are appended in order of arrival, whichever run they belong to: pages fill up.
CREATE TABLE checkpoint (
    number        INTEGER PRIMARY KEY,
    run           INTEGER NOT NULL REFERENCES run (number),
    generation    INTEGER NOT NULL,
    lease_version INTEGER NOT NULL,
    digest        BLOB    NOT NULL CHECK (length(digest) = 32),
    settles       TEXT    NOT NULL,  -- JSON list of names
    envelope      BLOB    NOT NULL,
    events        BLOB    NOT NULL
) STRICT;

CREATE INDEX checkpoint_by_generation ON checkpoint (run, generation);

-- Eight bytes find a row; the whole digest is compared in the row itself.
CREATE INDEX checkpoint_by_digest ON checkpoint (substr(digest, 1, 8));

-- Apart, so that pruning drops whole pages and never rewrites a checkpoint.
CREATE TABLE state (
    checkpoint INTEGER PRIMARY KEY REFERENCES checkpoint (number) ON DELETE CASCADE,
    state      BLOB NOT NULL
) STRICT;

-- Eight bytes of the SHA-256 of a name find a row; the name is compared in the row itself.
CREATE TABLE settled (
    run        INTEGER NOT NULL,
    name       BLOB    NOT NULL CHECK (length(name) = 8),
    checkpoint INTEGER NOT NULL,
    PRIMARY KEY (run, name, checkpoint)
) STRICT, WITHOUT ROWID;

CREATE TABLE mark (
    run      INTEGER PRIMARY KEY REFERENCES run (number),
    envelope BLOB NOT NULL
) STRICT;
