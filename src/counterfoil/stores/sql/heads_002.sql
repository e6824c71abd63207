-- The latest moment that the register has acted on is `floor_ms` or the latest `acted_at_ms` of the
-- heads that are ahead of it, whichever is later: its clock never reads less. So a commit moves
-- its own row alone.
ALTER TABLE head ADD COLUMN
    acted_at_ms INTEGER NOT NULL DEFAULT 0;  -- of the latest advance
ALTER TABLE head ADD COLUMN
    is_ahead INTEGER NOT NULL DEFAULT 0 CHECK (is_ahead IN (0, 1));  -- 0: `floor_ms` is no less

-- Heads that were advanced since another write last moved `floor_ms`: those of live sessions.
CREATE INDEX head_ahead ON head (run_id) WHERE is_ahead = 1;

-- What a worker looks through for runs to claim: those that nobody holds in the order in which they
-- fall due, and those that are held. A commit moves neither.
DROP INDEX head_active;
CREATE INDEX head_free ON head (expires_at_ms, run_id) WHERE status = 'active' AND nonce = '';
CREATE INDEX head_held ON head (run_id) WHERE status = 'active' AND nonce <> '';
