-- Checkpoints of many runs, append-only but for pruning. Identifiers and names are the
-- UTF-8 bytes of a text: every text is kept, and bytes are in order of code points.
CREATE TABLE {schema}.run (
    number       bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    run_id       bytea  NOT NULL UNIQUE,
    mark_version bigint NOT NULL DEFAULT -1,  -- lease of the mark; -1 when there is none
    mark         bytea,
    state_floor  bigint NOT NULL DEFAULT 0    -- no checkpoint of a generation below has a state
);

-- No foreign keys: rows come and go by the functions below alone, and a commit does not
-- pay for what these keep.
CREATE TABLE {schema}.checkpoint (
    number        bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    run           bigint NOT NULL,
    generation    bigint NOT NULL,
    lease_version bigint NOT NULL,
    digest        bytea  NOT NULL CHECK (octet_length(digest) = 32),
    previous      bytea,           -- digest that the header names; NULL where it is none of ours
    settles       bytea  NOT NULL, -- JSON list of names
    envelope      bytea  NOT NULL,
    events        bytea  NOT NULL,
    UNIQUE (run, digest)
);

CREATE INDEX checkpoint_by_generation ON {schema}.checkpoint (run, generation);

-- Apart, so that pruning never rewrites a checkpoint.
CREATE TABLE {schema}.state (
    checkpoint bigint PRIMARY KEY,
    state      bytea  NOT NULL
);

CREATE TABLE {schema}.settled (
    run        bigint NOT NULL,
    name       bytea  NOT NULL CHECK (octet_length(name) = 32), -- SHA-256
    generation bigint NOT NULL,
    checkpoint bigint NOT NULL,
    PRIMARY KEY (run, name, generation, checkpoint)
);

-- Every write waits for locks so long and no longer, and is durable when it is answered,
-- whatever the database or the role has set. Both end with the transaction.
CREATE OR REPLACE FUNCTION {schema}.begin_write() RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM set_config('lock_timeout', '5000', true);
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END
$body$;

-- Give runs their rows and lock them in the order that is given, so that a put and a mark of
-- one run come one after the other, and no two batches wait for each other.
CREATE FUNCTION {schema}.lock_runs(run_ids bytea[]) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    locked integer;
BEGIN
    PERFORM begin_write();
    PERFORM 1 FROM run WHERE run_id = ANY (run_ids) ORDER BY run_id FOR NO KEY UPDATE;
    GET DIAGNOSTICS locked = ROW_COUNT;
    IF locked < cardinality(run_ids) THEN
        INSERT INTO run (run_id) SELECT unnest(run_ids) ORDER BY 1 ON CONFLICT DO NOTHING;
        PERFORM 1 FROM run WHERE run_id = ANY (run_ids) ORDER BY run_id FOR NO KEY UPDATE;
    END IF;
END
$body$;

CREATE FUNCTION {schema}.refuse_superseded(run_id bytea, lease_version bigint, mark_version bigint)
RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'a newer lease has marked the run' USING ERRCODE = 'CF001',
        DETAIL = json_build_object('run_id', encode(run_id, 'hex'), 'lease_version', lease_version,
            'mark_version', mark_version);
END
$body$;

-- Store a batch, all or none; what is there is kept. `run_ids` are the distinct ones of
-- `owners` in order; `named` holds, for each of `names`, the place of its row in the batch.
CREATE FUNCTION {schema}.put(
    run_ids bytea[], owners bytea[], generations bigint[], lease_versions bigint[],
    digests bytea[], previous bytea[], settles bytea[], envelopes bytea[], events bytea[],
    states bytea[], named integer[], names bytea[]
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
DECLARE
    owner run%ROWTYPE;
    made bigint;
BEGIN
    PERFORM lock_runs(run_ids);
    FOR at IN 1 .. coalesce(cardinality(owners), 0) LOOP
        SELECT * INTO STRICT owner FROM run WHERE run_id = owners[at];
        IF owner.mark_version > lease_versions[at] THEN
            PERFORM refuse_superseded(owner.run_id, lease_versions[at], owner.mark_version);
        END IF;
        INSERT INTO checkpoint
            (run, generation, lease_version, digest, previous, settles, envelope, events)
        VALUES (owner.number, generations[at], lease_versions[at], digests[at],
            put.previous[at], put.settles[at], envelopes[at], put.events[at])
        ON CONFLICT (run, digest) DO NOTHING
        RETURNING number INTO made;
        CONTINUE WHEN made IS NULL;
        IF octet_length(states[at]) > 0 THEN
            INSERT INTO state VALUES (made, states[at]);
        END IF;
        INSERT INTO settled (run, name, generation, checkpoint)
        SELECT owner.number, n.name, generations[at], made
        FROM unnest(named, names) AS n (place, name) WHERE n.place = at;
        IF generations[at] < owner.state_floor THEN
            UPDATE run SET state_floor = generations[at] WHERE number = owner.number;
        END IF;
    END LOOP;
    RETURN true;
END
$body$;

-- Replace the mark of a run, unless it is of a newer lease.
CREATE FUNCTION {schema}.mark(marked bytea, lease_version bigint, envelope bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
DECLARE
    present bigint;
BEGIN
    PERFORM lock_runs(ARRAY[marked]);
    SELECT mark_version INTO present FROM run WHERE run_id = marked;
    IF present > lease_version THEN
        PERFORM refuse_superseded(marked, lease_version, present);
    END IF;
    UPDATE run SET mark_version = lease_version, mark = envelope WHERE run_id = marked;
    RETURN true;
END
$body$;

-- Whether a head in this schema names a checkpoint. Heads may lie elsewhere.
CREATE FUNCTION {schema}.is_named(c {schema}.checkpoint) RETURNS boolean
LANGUAGE plpgsql AS $body$
BEGIN
    IF to_regclass('head') IS NULL THEN
        RETURN false;
    END IF;
    RETURN EXISTS (
        SELECT 1 FROM run JOIN head USING (run_id)
        WHERE run.number = c.run AND head.checkpoint = c.digest
    );
END
$body$;

-- Whether a state may go: once some checkpoint of its generation has a successor, so that it
-- is decided which of them the chain goes through. Where a header cannot be read, whoever
-- prunes decides.
CREATE FUNCTION {schema}.may_lose_state(c {schema}.checkpoint) RETURNS boolean
LANGUAGE plpgsql AS $body$
BEGIN
    RETURN (c.previous IS NULL OR EXISTS (
        SELECT 1 FROM checkpoint AS beside JOIN checkpoint AS next ON next.run = beside.run
            AND next.generation = beside.generation + 1 AND next.previous = beside.digest
        WHERE beside.run = c.run AND beside.generation = c.generation
    )) AND NOT is_named(c);
END
$body$;

-- A whole checkpoint may go if, beyond that, no other was built on it.
CREATE FUNCTION {schema}.may_go(c {schema}.checkpoint) RETURNS boolean
LANGUAGE plpgsql AS $body$
BEGIN
    RETURN may_lose_state(c) AND NOT EXISTS (
        SELECT 1 FROM checkpoint AS next
        WHERE next.run = c.run AND next.generation = c.generation + 1 AND next.previous = c.digest
    );
END
$body$;

-- Drop states below a generation, and checkpoints beside the chain; return how many changed.
-- What may not go stays, whatever the chain says: a later pass finds it again.
CREATE FUNCTION {schema}.prune(pruned bytea, generations bigint[], digests bytea[], below bigint)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
DECLARE
    which run%ROWTYPE;
    orphans bigint[];
    old bigint[];
    dropped bigint;
BEGIN
    PERFORM begin_write();
    SELECT * INTO which FROM run WHERE run_id = pruned FOR NO KEY UPDATE;
    SELECT coalesce(array_agg(c.number), '{}') INTO orphans
    FROM unnest(generations, digests) AS g (generation, digest)
    CROSS JOIN LATERAL ( -- one generation at a time, however many others there are
        SELECT c.* FROM checkpoint AS c
        WHERE c.run = which.number AND c.generation = g.generation AND c.digest <> g.digest
        OFFSET 0
    ) AS c
    WHERE may_go((SELECT d FROM checkpoint AS d WHERE d.number = c.number));
    DELETE FROM settled AS s USING checkpoint AS c
    WHERE c.number = ANY (orphans) AND s.run = c.run AND s.generation = c.generation
        AND s.checkpoint = c.number;
    DELETE FROM state WHERE checkpoint = ANY (orphans);
    DELETE FROM checkpoint WHERE number = ANY (orphans);
    SELECT coalesce(array_agg(c.number), '{}') INTO old FROM checkpoint AS c
    WHERE c.run = which.number AND c.generation >= which.state_floor AND c.generation < below;
    DELETE FROM state AS s USING checkpoint AS c
    WHERE s.checkpoint = ANY (old) AND c.number = s.checkpoint AND may_lose_state(c);
    GET DIAGNOSTICS dropped = ROW_COUNT;
    UPDATE run SET state_floor = greatest(state_floor, coalesce((
        SELECT min(c.generation) FROM state AS s JOIN checkpoint AS c ON c.number = s.checkpoint
        WHERE s.checkpoint = ANY (old)
    ), below)) WHERE number = which.number;
    RETURN cardinality(orphans) + dropped;
END
$body$;

-- The functions above keep these rules. The triggers hold whoever writes to a table itself.
CREATE OR REPLACE FUNCTION {schema}.refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    RAISE EXCEPTION '% of % is never done', TG_OP, TG_TABLE_NAME USING ERRCODE = 'CF009';
END
$body$;

CREATE FUNCTION {schema}.guard_checkpoint() RETURNS trigger
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $body$
BEGIN
    IF NOT may_go(OLD) THEN
        RAISE EXCEPTION 'a checkpoint of the chain stays' USING ERRCODE = 'CF009';
    END IF;
    RETURN OLD;
END
$body$;

CREATE FUNCTION {schema}.guard_state() RETURNS trigger
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $body$
BEGIN
    IF EXISTS (SELECT 1 FROM checkpoint AS c WHERE c.number = OLD.checkpoint
        AND NOT may_lose_state(c)) THEN
        RAISE EXCEPTION 'a state that may be needed stays' USING ERRCODE = 'CF009';
    END IF;
    RETURN OLD;
END
$body$;

CREATE FUNCTION {schema}.guard_settled() RETURNS trigger
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $body$
BEGIN
    IF EXISTS (SELECT 1 FROM checkpoint AS c WHERE c.number = OLD.checkpoint AND NOT may_go(c)) THEN
        RAISE EXCEPTION 'a name of a checkpoint that stays, stays' USING ERRCODE = 'CF009';
    END IF;
    RETURN OLD;
END
$body$;

CREATE FUNCTION {schema}.guard_run() RETURNS trigger
LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $body$
BEGIN
    IF NEW.number <> OLD.number OR NEW.run_id <> OLD.run_id OR NEW.mark_version < OLD.mark_version
    THEN
        RAISE EXCEPTION 'a run keeps its name, and its mark never goes back'
            USING ERRCODE = 'CF009';
    END IF;
    RETURN NEW;
END
$body$;

CREATE TRIGGER stays BEFORE UPDATE OR TRUNCATE ON {schema}.checkpoint
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER stays BEFORE UPDATE OR TRUNCATE ON {schema}.state
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER stays BEFORE UPDATE OR TRUNCATE ON {schema}.settled
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER stays BEFORE DELETE OR TRUNCATE ON {schema}.run
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER guard BEFORE DELETE ON {schema}.checkpoint
    FOR EACH ROW EXECUTE FUNCTION {schema}.guard_checkpoint();
CREATE TRIGGER guard BEFORE DELETE ON {schema}.state
    FOR EACH ROW EXECUTE FUNCTION {schema}.guard_state();
CREATE TRIGGER guard BEFORE DELETE ON {schema}.settled
    FOR EACH ROW EXECUTE FUNCTION {schema}.guard_settled();
CREATE TRIGGER guard BEFORE UPDATE ON {schema}.run
    FOR EACH ROW EXECUTE FUNCTION {schema}.guard_run();

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
