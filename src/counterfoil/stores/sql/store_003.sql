-- What stands for the checkpoints of a finished run once these are dropped: a seal, an index
-- and pieces. What they mean is for whoever reads them to verify.
CREATE TABLE archive (
    run     INTEGER NOT NULL REFERENCES run (number),
    name    TEXT    NOT NULL,
    content BLOB    NOT NULL,
    PRIMARY KEY (run, name)
) STRICT;
