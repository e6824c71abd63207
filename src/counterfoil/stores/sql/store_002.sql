-- By which names rows are found: the first eight bytes of the digest, and of the SHA-256 of
-- each name that a row settles. The whole is compared in the row itself. The newest rows,
-- after the last whole 64, need not be in it yet; they are looked at one by one.
CREATE TABLE name (
    run        INTEGER NOT NULL,
    short      BLOB    NOT NULL CHECK (length(short) = 8),
    checkpoint INTEGER NOT NULL,
    PRIMARY KEY (run, short, checkpoint)
) STRICT, WITHOUT ROWID;

INSERT INTO name
SELECT run, substr(digest, 1, 8), number FROM checkpoint
UNION
SELECT run, name, checkpoint FROM settled;

DROP INDEX checkpoint_by_digest;
DROP TABLE settled;
