-- Signed statements in order of arrival.
CREATE TABLE statement (
    number    INTEGER PRIMARY KEY,
    run_id    TEXT NOT NULL,
    sha256    BLOB NOT NULL CHECK (length(sha256) = 32),
    statement BLOB NOT NULL,
    UNIQUE (run_id, sha256)
) STRICT;
