-- One row about the register itself. `floor_ms` is the latest moment at which it has called
-- a lease over: its clock never reads less, so a clock set back revives none.
CREATE TABLE {schema}.register (
    one         boolean PRIMARY KEY DEFAULT true CHECK (one),
    incarnation bytea   NOT NULL CHECK (octet_length(incarnation) > 0),
    floor_ms    bigint  NOT NULL
);

INSERT INTO {schema}.register (incarnation, floor_ms)
VALUES (convert_to(replace(gen_random_uuid()::text, '-', ''), 'UTF8'), 0);

-- One row per run, never deleted. Texts are UTF-8 bytes: every text is kept, and bytes are
-- in order of code points. `seen_ms` is the latest moment at which this head was acted on:
-- commits of different runs share no row, and yet none of them sees its clock go back.
CREATE TABLE {schema}.head (
    run_id        bytea  NOT NULL PRIMARY KEY,
    generation    bigint NOT NULL CHECK (generation >= 0),
    checkpoint    bytea  NOT NULL CHECK (octet_length(checkpoint) = 32),
    owner         bytea  NOT NULL,
    nonce         bytea  NOT NULL,
    lease_version bigint NOT NULL CHECK (lease_version >= 1),
    expires_at_ms bigint NOT NULL,
    status        text   NOT NULL CHECK (status IN ('active', 'frozen', 'terminal')),
    seen_ms       bigint NOT NULL,
    due_ms        bigint GENERATED ALWAYS AS (CASE WHEN nonce = '' THEN expires_at_ms END) STORED
) WITH (fillfactor = 50);

-- What a worker looks through for runs to claim: those that nobody holds in the order in which they
-- fall due, and those that are held. A commit changes nothing that they rest on.
CREATE INDEX head_free ON {schema}.head (due_ms, run_id)
    WHERE status = 'active' AND due_ms IS NOT NULL;
CREATE INDEX head_held ON {schema}.head (run_id) WHERE status = 'active' AND due_ms IS NULL;

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

-- The server's clock, UTC, in milliseconds.
CREATE FUNCTION {schema}.now_ms() RETURNS bigint
LANGUAGE sql VOLATILE
RETURN floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint;

-- Heads as everybody may read them: who may not read nonces sees only whether there is one.
CREATE VIEW {schema}.heads AS
SELECT run_id, generation, checkpoint, owner,
    CASE WHEN nonce = '' OR has_column_privilege('{schema}.head', 'nonce', 'SELECT')
        THEN nonce ELSE 'hidden' END AS nonce,
    lease_version, expires_at_ms, status, incarnation, greatest(seen_ms, floor_ms) AS seen_ms,
    due_ms
FROM {schema}.head CROSS JOIN {schema}.register;

-- Lock heads in the order of their runs, so that no two batches wait for each other, and
-- only then read the clock: what was waited for counts.
CREATE FUNCTION {schema}.lock_heads(run_ids bytea[], OUT now_ms bigint, OUT incarnation bytea)
LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM begin_write();
    PERFORM 1 FROM head WHERE run_id = ANY (run_ids) ORDER BY run_id FOR NO KEY UPDATE;
    SELECT greatest({schema}.now_ms(), r.floor_ms), r.incarnation INTO STRICT now_ms, incarnation
    FROM register AS r;
END
$body$;

-- Undo everything, and say what the head was and what the clock said.
CREATE FUNCTION {schema}.refuse(run bytea, now_ms bigint, place integer DEFAULT 1) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    RAISE EXCEPTION 'the head does not allow it' USING ERRCODE = 'CF003', DETAIL = (
        SELECT json_build_object('place', place,
            'now_ms', greatest(now_ms, (SELECT max(seen_ms) FROM head WHERE run_id = run)),
            'head', (SELECT json_build_array(generation, encode(checkpoint, 'hex'),
                encode(owner, 'hex'), -- a nonce stands in no log
                CASE WHEN nonce = '' THEN '' ELSE encode(sha256(nonce), 'hex') END,
                lease_version, expires_at_ms, status, encode(incarnation, 'hex'))
                FROM head CROSS JOIN register WHERE run_id = run)));
END
$body$;

CREATE FUNCTION {schema}.keep_floor(acted_ms bigint) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    UPDATE register SET floor_ms = acted_ms WHERE floor_ms < acted_ms;
END
$body$;

CREATE FUNCTION {schema}.create_head(
    run bytea, first bytea, holder bytea, fresh bytea, ttl_ms bigint
) RETURNS SETOF {schema}.heads
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
DECLARE
    clock record;
BEGIN
    SELECT * INTO clock FROM lock_heads('{}');
    INSERT INTO head VALUES
        (run, 0, first, holder, fresh, 1, clock.now_ms + ttl_ms, 'active', clock.now_ms)
    ON CONFLICT (run_id) DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the run has a head' USING ERRCODE = 'CF002';
    END IF;
    RETURN QUERY SELECT * FROM heads WHERE run_id = run;
END
$body$;

-- Take a lease that is free or over. That one is over is remembered for every run.
CREATE FUNCTION {schema}.acquire(
    run bytea, known_incarnation bytea, known_generation bigint, known_checkpoint bytea,
    known_owner bytea, known_nonce bytea, known_version bigint, known_status text,
    holder bytea, fresh bytea, ttl_ms bigint
) RETURNS SETOF {schema}.heads
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
DECLARE
    clock record;
BEGIN
    SELECT * INTO clock FROM lock_heads(ARRAY[run]);
    UPDATE head
    SET owner = holder, nonce = fresh, lease_version = lease_version + 1,
        expires_at_ms = greatest(seen_ms, clock.now_ms) + ttl_ms,
        seen_ms = greatest(seen_ms, clock.now_ms)
    WHERE run_id = run AND generation = known_generation AND checkpoint = known_checkpoint
        AND owner = known_owner AND nonce = known_nonce AND lease_version = known_version
        AND status = known_status AND clock.incarnation = known_incarnation
        AND (nonce = '' OR expires_at_ms <= greatest(seen_ms, clock.now_ms));
    IF NOT FOUND THEN
        PERFORM refuse(run, clock.now_ms);
    END IF;
    IF known_nonce <> '' THEN
        PERFORM keep_floor(clock.now_ms);
    END IF;
    RETURN QUERY SELECT * FROM heads WHERE run_id = run;
END
$body$;

CREATE FUNCTION {schema}.renew(run bytea, held_nonce bytea, held_version bigint, ttl_ms bigint)
RETURNS SETOF {schema}.heads
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
DECLARE
    clock record;
BEGIN
    SELECT * INTO clock FROM lock_heads(ARRAY[run]);
    UPDATE head
    SET expires_at_ms = greatest(expires_at_ms, greatest(seen_ms, clock.now_ms) + ttl_ms),
        seen_ms = greatest(seen_ms, clock.now_ms)
    WHERE run_id = run AND nonce = held_nonce AND nonce <> '' AND lease_version = held_version
        AND expires_at_ms > greatest(seen_ms, clock.now_ms);
    IF NOT FOUND THEN
        PERFORM refuse(run, clock.now_ms);
    END IF;
    RETURN QUERY SELECT * FROM heads WHERE run_id = run;
END
$body$;

-- Move heads on in the order of the batch, all or none. `run_ids` are the distinct ones of
-- `runs` in order.
CREATE FUNCTION {schema}.advance(
    run_ids bytea[], runs bytea[], incarnations bytea[], generations bigint[],
    checkpoints bytea[], nonces bytea[], versions bigint[],
    next_checkpoints bytea[], statuses text[], ttls_ms bigint[]
) RETURNS TABLE (moved_owner bytea, moved_expires_at_ms bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
DECLARE
    clock record;
BEGIN
    SELECT * INTO clock FROM lock_heads(run_ids);
    FOR place IN 1 .. coalesce(cardinality(runs), 0) LOOP
        UPDATE head
        SET generation = generation + 1, checkpoint = next_checkpoints[place],
            status = statuses[place],
            expires_at_ms = greatest(expires_at_ms,
                greatest(seen_ms, clock.now_ms) + ttls_ms[place]),
            seen_ms = greatest(seen_ms, clock.now_ms)
        WHERE run_id = runs[place] AND generation = generations[place]
            AND checkpoint = checkpoints[place] AND nonce = nonces[place] AND nonce <> ''
            AND lease_version = versions[place] AND clock.incarnation = incarnations[place]
            AND expires_at_ms > greatest(seen_ms, clock.now_ms)
        RETURNING owner, expires_at_ms INTO moved_owner, moved_expires_at_ms;
        IF NOT FOUND THEN
            PERFORM refuse(runs[place], clock.now_ms, place);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$body$;

CREATE FUNCTION {schema}.release(run bytea, held_nonce bytea, held_version bigint, pause_ms bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
DECLARE
    clock record;
BEGIN
    SELECT * INTO clock FROM lock_heads(ARRAY[run]);
    UPDATE head
    SET owner = '', nonce = '', seen_ms = greatest(seen_ms, clock.now_ms), expires_at_ms =
        CASE WHEN pause_ms > 0 THEN greatest(seen_ms, clock.now_ms) + pause_ms ELSE 0 END
    WHERE run_id = run AND nonce = held_nonce AND lease_version = held_version;
    RETURN FOUND;
END
$body$;

-- Remember a moment at which a lease was called over, and return the latest one. A caller
-- cannot name one that is still to come.
CREATE FUNCTION {schema}.raise_floor(acted_ms bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
BEGIN
    PERFORM begin_write();
    PERFORM keep_floor(least(acted_ms, now_ms()));
    RETURN (SELECT floor_ms FROM register);
END
$body$;

-- The functions above keep these rules. The triggers hold whoever writes to a table itself.
CREATE OR REPLACE FUNCTION {schema}.refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    RAISE EXCEPTION '% of % is never done', TG_OP, TG_TABLE_NAME USING ERRCODE = 'CF009';
END
$body$;

CREATE FUNCTION {schema}.guard_head() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF NEW.run_id <> OLD.run_id
        OR NEW.generation NOT IN (OLD.generation, OLD.generation + 1)
        OR NEW.generation = OLD.generation
            AND (NEW.checkpoint, NEW.status) <> (OLD.checkpoint, OLD.status)
        OR NEW.lease_version NOT IN (OLD.lease_version, OLD.lease_version + 1)
        OR NEW.lease_version = OLD.lease_version AND NEW.nonce NOT IN (OLD.nonce, '')
        OR NEW.lease_version <> OLD.lease_version AND NEW.nonce IN (OLD.nonce, '')
        OR NEW.seen_ms < OLD.seen_ms
    THEN
        RAISE EXCEPTION 'a head goes on by one, under a lease that was never given before'
            USING ERRCODE = 'CF009';
    END IF;
    RETURN NEW;
END
$body$;

CREATE FUNCTION {schema}.guard_register() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    IF NEW.incarnation <> OLD.incarnation OR NEW.floor_ms < OLD.floor_ms THEN
        RAISE EXCEPTION 'a register keeps its name, and its clock never goes back'
            USING ERRCODE = 'CF009';
    END IF;
    RETURN NEW;
END
$body$;

CREATE TRIGGER stays BEFORE DELETE OR TRUNCATE ON {schema}.head
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER stays BEFORE DELETE OR TRUNCATE ON {schema}.register
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER guard BEFORE UPDATE ON {schema}.head
    FOR EACH ROW EXECUTE FUNCTION {schema}.guard_head();
CREATE TRIGGER guard BEFORE UPDATE ON {schema}.register
    FOR EACH ROW EXECUTE FUNCTION {schema}.guard_register();

-- Ring for workers that wait: a run is free at once.
CREATE OR REPLACE FUNCTION {schema}.ring() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
    PERFORM pg_notify('counterfoil ' || TG_TABLE_SCHEMA, '');
    RETURN NULL;
END
$body$;

CREATE TRIGGER ring_created AFTER INSERT ON {schema}.head FOR EACH ROW
    WHEN (NEW.nonce = '' AND NEW.status = 'active') EXECUTE FUNCTION {schema}.ring();
CREATE TRIGGER ring_released AFTER UPDATE ON {schema}.head FOR EACH ROW
    WHEN (OLD.nonce <> '' AND NEW.nonce = '' AND NEW.status = 'active' AND NEW.expires_at_ms = 0)
    EXECUTE FUNCTION {schema}.ring();

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
