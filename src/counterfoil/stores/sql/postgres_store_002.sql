-- What stands for the checkpoints of a finished run once these are dropped: a seal, an index
-- and pieces. What they mean is for whoever reads them to verify. Whoever may read
-- checkpoints may read it; to write it, and to drop checkpoints, is the owner's alone.
CREATE TABLE {schema}.archive (
    run     bigint NOT NULL,
    name    bytea  NOT NULL,
    content bytea  NOT NULL,
    PRIMARY KEY (run, name)
);
ALTER TABLE {schema}.archive ALTER COLUMN content SET STORAGE EXTERNAL; -- it is compressed already

DO $body$
DECLARE
    role name;
BEGIN
    FOR role IN SELECT DISTINCT r.rolname FROM pg_class AS c, aclexplode(c.relacl) AS a
        JOIN pg_roles AS r ON r.oid = a.grantee
        WHERE c.oid = '{schema}.checkpoint'::regclass AND a.privilege_type = 'SELECT'
    LOOP
        EXECUTE format('GRANT SELECT ON {schema}.archive TO %I', role);
    END LOOP;
END
$body$;

-- Keep one part of an archive; another one of its name is replaced.
CREATE FUNCTION {schema}.archive(archived bytea, part bytea, content bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
BEGIN
    PERFORM lock_runs(ARRAY[archived]);
    INSERT INTO archive AS a (run, name, content)
    SELECT number, part, archive.content FROM run WHERE run_id = archived
    ON CONFLICT (run, name) DO UPDATE SET content = excluded.content;
    RETURN true;
END
$body$;

-- Whether a checkpoint is in the archive of its run, and not the last one, which stays.
CREATE FUNCTION {schema}.is_archived(c {schema}.checkpoint) RETURNS boolean
LANGUAGE plpgsql AS $body$
BEGIN
    RETURN EXISTS (SELECT 1 FROM archive WHERE run = c.run AND name = 'seal') AND EXISTS (
        SELECT 1 FROM checkpoint AS later
        WHERE later.run = c.run AND later.generation > c.generation
    );
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.may_lose_state(c {schema}.checkpoint) RETURNS boolean
LANGUAGE plpgsql AS $body$
BEGIN
    RETURN (c.previous IS NULL OR EXISTS (
        SELECT 1 FROM checkpoint AS beside JOIN checkpoint AS next ON next.run = beside.run
            AND next.generation = beside.generation + 1 AND next.previous = beside.digest
        WHERE beside.run = c.run AND beside.generation = c.generation
    ) OR is_archived(c)) AND NOT is_named(c);
END
$body$;

CREATE OR REPLACE FUNCTION {schema}.may_go(c {schema}.checkpoint) RETURNS boolean
LANGUAGE plpgsql AS $body$
BEGIN
    RETURN may_lose_state(c) AND (is_archived(c) OR NOT EXISTS (
        SELECT 1 FROM checkpoint AS next
        WHERE next.run = c.run AND next.generation = c.generation + 1 AND next.previous = c.digest
    ));
END
$body$;

-- Drop checkpoints of an archived run up to a generation, but one; return how many went.
-- What may not go stays.
CREATE FUNCTION {schema}.collect(collected bytea, kept bytea, up_to bigint, most bigint)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {schema}, pg_temp AS $body$
DECLARE
    which run%ROWTYPE;
    old bigint[];
BEGIN
    PERFORM begin_write();
    SELECT * INTO which FROM run WHERE run_id = collected FOR NO KEY UPDATE;
    IF NOT EXISTS (SELECT 1 FROM archive WHERE run = which.number AND name = 'seal') THEN
        RAISE EXCEPTION 'checkpoints of a run without an archive stay' USING ERRCODE = 'CF009';
    END IF;
    SELECT coalesce(array_agg(number), '{}') INTO old FROM (
        SELECT c.number FROM checkpoint AS c
        WHERE c.run = which.number AND c.generation <= up_to AND c.digest <> kept AND may_go(c)
        ORDER BY c.generation, c.number LIMIT most
    ) AS oldest;
    DELETE FROM settled AS s USING checkpoint AS c
    WHERE c.number = ANY (old) AND s.run = c.run AND s.generation = c.generation
        AND s.checkpoint = c.number;
    DELETE FROM state WHERE checkpoint = ANY (old);
    DELETE FROM checkpoint WHERE number = ANY (old);
    RETURN cardinality(old);
END
$body$;

CREATE TRIGGER stays BEFORE DELETE OR TRUNCATE ON {schema}.archive
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();

REVOKE ALL ON FUNCTION {schema}.archive, {schema}.collect, {schema}.is_archived FROM PUBLIC;
